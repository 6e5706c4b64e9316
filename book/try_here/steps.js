// Plays what kerneltrace recorded of a few threads. A moment is found by its key, the
// numbers of the threads that had a turn so far; nothing is computed here.
const STEP_MS = 1500;
const SHOWN = 12; // steps below each other
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

function made(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function button(text, press) {
  const element = made("button", { type: "button" }, text);
  element.onclick = press;
  return element;
}

function swatch(thread) {
  const style = `try-swatch try-thread-${thread}`;
  return made("span", { class: style, "aria-hidden": "true" });
}

// The source, with the threads whose next access is on a line in front of it.
function sourceLines(kernel, moment) {
  return kernel.source.flatMap((text, line) => {
    const threads = moment.lines.flatMap((at, n) => (at === line && at ? [n] : []));
    const mark = threads.length ? `thread ${threads.join(", ")} ▶` : "";
    return [mark.padEnd(16), `${text}\n`];
  });
}

// The arrays, with the numbers in bold that the last step changed.
function memoryRows(moment, before) {
  return Object.entries(moment.memory).map(([name, rows]) => {
    const cells = rows.map((row, y) => {
      const numbers = row.map((number, x) => {
        const was = before?.memory[name]?.[y][x];
        return made(was === undefined || was === number ? "span" : "strong", {}, number);
      });
      return made("div", {}, ...numbers.flatMap((number) => [number, " "]));
    });
    return made("tr", {}, made("th", { scope: "row" }, name), made("td", {}, ...cells));
  });
}

// The steps up to a moment, the last ones at least.
function stepItems(kernel, key) {
  const first = Math.max(key.length - SHOWN, 0);
  return [...key].slice(first).map((thread, i) => {
    const { said } = kernel.moments[key.slice(0, first + i + 1)];
    const number = first + i + 1;
    return made("li", { value: number }, swatch(thread), ` thread ${thread} ${said}`);
  });
}

// Everything that is shown of a kernel at the moment `key`.
function parts(kernel, key) {
  const moment = kernel.moments[key];
  const before = key ? kernel.moments[key.slice(0, -1)] : undefined;
  const memory = made("tbody", {}, ...memoryRows(moment, before));
  const shown = [
    made("p", {}, kernel.about),
    made("table", { class: "try-memory" }, made("caption", {}, "Memory"), memory),
    made("ol", { class: "try-steps" }, ...stepItems(kernel, key)),
  ];
  if (kernel.source.length) {
    const scrolls = { tabindex: "0", role: "region", "aria-label": "The kernel" };
    shown.splice(1, 0, made("pre", scrolls, ...sourceLines(kernel, moment)));
  }
  return shown;
}

function spoken(kernel, key) {
  const moment = kernel.moments[key];
  if (!key) return "Nothing has been read or written yet.";
  const thread = key.at(-1);
  const step = `Step ${key.length}: thread ${thread} ${moment.said}.`;
  return moment.next ? step : `${step} That was the last one. ${moment.ended}`.trim();
}

// Puts a player of kernels into `place`.
export function player(place, kernels) {
  let kernel = kernels[0];
  let key = "";
  let playing = 0;
  const status = made("p", { role: "status" });
  const stage = made("div");
  const choice = made("select");
  kernels.forEach(({ title }) => choice.append(made("option", {}, title)));
  const label = made("label", {}, `${place.dataset.choice} `, choice);
  const back = button("Back", () => go(key.slice(0, -1)));
  const step = button("Step", () => go(key + kernel.moments[key].next));
  const again = button("From the start", () => go(""));
  const play = button("Play", () => (playing ? stop() : start()));
  const turns = made("span", { class: "try-buttons" });
  const row = made("div", { class: "try-buttons" }, label, again, back, step, play);

  function stop() {
    clearInterval(playing);
    playing = 0;
    play.textContent = "Play";
  }
  function start() {
    if (!kernel.moments[key].next) key = "";
    play.textContent = "Pause";
    playing = setInterval(onward, STEP_MS);
    onward();
  }
  function onward() {
    key += kernel.moments[key].next;
    draw();
    if (!kernel.moments[key].next) stop();
  }
  function go(to) {
    stop();
    key = to;
    draw();
  }
  // A button that is pressed keeps the focus: it is told to be off, and not taken away.
  function enable(element, is_on) {
    element.setAttribute("aria-disabled", String(!is_on));
  }
  function draw() {
    const moment = kernel.moments[key];
    stage.replaceChildren(...parts(kernel, key));
    status.textContent = spoken(kernel, key);
    enable(back, key);
    enable(step, moment.next);
    [...turns.children].forEach((element, n) => enable(element, !moment.waits[n]));
    play.hidden = STILL.matches;
  }
  function choose() {
    kernel = kernels[choice.selectedIndex];
    const names = kernel.isFree ? [...Array(kernel.threads).keys()] : [];
    const ask = (n) => go(kernel.moments[key + n] ? key + n : key);
    turns.replaceChildren(...names.map((n) => button(`Step of thread ${n}`, () => ask(n))));
    go("");
  }
  choice.onchange = choose;
  STILL.onchange = draw;
  place.replaceChildren(row, turns, status, stage);
  choose();
}
