"use strict";
const $ = (id) => document.getElementById(id);
const form = $("question");
const gpuForm = $("gpu-question");
// What the page shows when it is opened without a question in its address.
const example = JSON.parse($("example").textContent);
const NARROW = matchMedia("(max-width: 60rem)");

// -- drawing

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function list(texts, style) {
  return element("ul", {class: style}, ...texts.map((text) => element("li", {}, text)));
}

// A heading, a button, and a text that the button copies.
function copyable(heading, text) {
  const scrolls = {tabindex: "0", role: "region", "aria-label": heading};
  const box = element("pre", scrolls, text);
  const button = element("button", {type: "button"}, "Copy");
  button.setAttribute("aria-label", `Copy: ${heading}`);
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(box);
      button.textContent = "Selected: copy it";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  };
  const top = element("div", {class: "copyable"}, element("h3", {}, heading), button);
  return [top, box];
}

// One bar of all parts, of which `scale` is the whole width.
function stackedBar(parts, scale, description) {
  const bar = element("div", {class: "bar", role: "img", "aria-label": description});
  parts.forEach(({amount, place}) => {
    const piece = element("span", {class: `piece color-${place % 8}`});
    piece.style.width = `${(100 * amount) / scale}%`;
    bar.append(piece);
  });
  return bar;
}

function swatch(place) {
  return element("span", {class: `swatch color-${place % 8}`});
}

function partsTable(parts, caption, total) {
  const rows = parts.map(({part, text, share, place}) =>
    element("tr", {},
      element("th", {scope: "row"}, swatch(place), part),
      element("td", {}, text),
      element("td", {}, `${(100 * share).toFixed(1)} %`)));
  rows.push(element("tr", {class: "total"},
    element("th", {scope: "row"}, "together"),
    element("td", {}, total),
    element("td")));
  return element("table", {class: "parts"},
    element("caption", {class: "hidden"}, caption), element("tbody", {}, ...rows));
}

function memoryPart(plan) {
  const [low, high] = plan.memory_interval_bytes;
  const scale = Math.max(high, plan.capacity_bytes);
  const said = `${plan.memory_text} of ${plan.capacity_text}`;
  const bar = stackedBar(plan.memory, scale, `Memory of a GPU: ${said}`);
  const mark = element("span", {class: "mark", "aria-hidden": "true"});
  mark.style.left = `${(100 * plan.capacity_bytes) / scale}%`;
  const interval = element("span", {class: "interval", "aria-hidden": "true"});
  interval.style.left = `${(100 * low) / scale}%`;
  interval.style.width = `${(100 * (high - low)) / scale}%`;
  bar.append(mark, interval);
  return element("section", {},
    element("h3", {}, `Memory of a GPU: ${said}, ${plan.verdict}`), bar,
    partsTable(plan.memory, "Memory of a GPU by part", plan.memory_text),
    element("p", {class: "worth"}, plan.memory_worth));
}

function timePart(plan) {
  const whole = plan.time.reduce((sum, {amount}) => sum + amount, 0);
  return element("section", {},
    element("h3", {}, `Time of a step: ${plan.seconds}`),
    stackedBar(plan.time, whole, `Time of a step: ${plan.seconds}`),
    partsTable(plan.time, "Time of a step by part", plan.seconds),
    element("p", {class: "worth"}, plan.worth));
}

function showLayout(box, plan, isFound) {
  const machines = `${plan.gpus.toLocaleString("en")} x ${plan.gpu}`;
  const children = [element("h3", {class: "layout-name"}, `${machines}: ${plan.name}`)];
  if (isFound) {
    const button = element("button", {type: "button"}, `Plan with ${machines}`);
    button.onclick = () => {
      form.elements.gpu.value = plan.gpu;
      form.elements.gpus.value = plan.gpus;
      form.requestSubmit();
    };
    children.push(button);
  }
  children.push(element("div", {class: "pair"}, memoryPart(plan), timePart(plan)));
  if (plan.configuration) {
    children.push(...copyable("Configuration", plan.configuration));
  } else if (plan.verdict !== "does not fit") {
    const text = "No configuration is written here for this library.";
    children.push(element("p", {class: "worth"}, text));
  }
  box.replaceChildren(...children);
}

function scrolling(table, label) {
  const scrolls = {class: "scrolls", tabindex: "0", role: "region"};
  return element("div", {...scrolls, "aria-label": label}, table);
}

function layoutsTable(answer, choose) {
  const head = answer.headings.map((text) => element("th", {scope: "col"}, text));
  const rows = answer.rows.map((cells, i) => {
    const radio = element("input", {type: "radio", name: "layout", id: `layout-${i}`});
    radio.checked = i === 0;
    radio.onchange = () => choose(i);
    const label = element("label", {for: radio.id}, cells[0]);
    const others = cells.slice(1).map((text, column) =>
      element("td", {role: "cell", "data-heading": answer.headings[column + 1]}, text));
    const name = element("th", {scope: "row", role: "rowheader"}, radio, label);
    const row = element("tr", {role: "row"}, name, ...others);
    row.onclick = () => { if (!radio.checked) radio.click(); };
    return row;
  });
  // the roles hold where a phone shows rows as paragraphs, too
  const table = element("table", {class: "layouts", role: "table"},
    element("caption", {class: "hidden"}, "Layouts, the preferred one first"),
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  return scrolling(table, "Layouts");
}

function differencesTable({title, headings, rows, notes}) {
  const head = headings.map((text) => element("th", {scope: "col"}, text));
  const body = rows.map(([first, ...others]) =>
    element("tr", {}, element("th", {scope: "row"}, first),
      ...others.map((text) => element("td", {}, text))));
  const table = element("table", {},
    element("caption", {}, title.join(" ")),
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  const heading = element("h3", {}, "What your run differs in");
  return [heading, scrolling(table, "Differences"), list(notes, "notes")];
}

function showPlan(answer) {
  const children = [];
  if (answer.error) {
    children.push(element("p", {class: "error", role: "alert"}, answer.error));
  } else {
    const details = element("div", {class: "details"});
    const [first, ...rest] = answer.title;
    children.push(element("p", {class: "title"}, element("strong", {}, first)));
    children.push(...rest.map((line) => element("p", {class: "title"}, line)));
    const choose = (i) => showLayout(details, answer.plans[i], answer.finds_gpus);
    children.push(layoutsTable(answer, choose));
    choose(0);
    if (answer.differences) children.push(...differencesTable(answer.differences));
    children.push(details, element("h3", {}, "What the numbers are worth"));
    children.push(list(answer.notes, "notes"));
  }
  if (answer.command) {
    children.push(...copyable("The same on a command line", answer.command));
  }
  $("answer").replaceChildren(...children);
}

function showGpu(answer) {
  if (answer.error) {
    $("gpu-answer").replaceChildren(element("p", {class: "error"}, answer.error));
    return;
  }
  const rows = answer.facts.map(([label, text]) =>
    element("tr", {}, element("th", {scope: "row"}, label), element("td", {}, text)));
  const table = element("table", {class: "facts"},
    element("caption", {}, answer.name), element("tbody", {}, ...rows));
  const notes = [answer.assumed, ...answer.notes].filter(Boolean);
  $("gpu-answer").replaceChildren(table, list(notes, "notes"));
}

// -- the question, and its address

function question() {
  const filled = [...new FormData(form)].filter(([name, text]) => {
    const way = form.elements[name].closest("[data-way]");
    return text.trim() && !(way && way.dataset.way !== form.elements.way.value);
  });
  const fields = Object.fromEntries(filled);
  if (fields.way === "name") delete fields.way;
  return fields;
}

function fill(fields) {
  for (const input of form.elements) {
    if (input.name) input.value = fields[input.name] || "";
  }
  if (!fields.way) form.elements.way.value = "name";
  const more = [...$("more").querySelectorAll("[name]")];
  if (more.some((input) => input.value)) $("more").open = true;
  showWay();
}

function showWay() {
  for (const label of form.querySelectorAll("[data-way]")) {
    label.hidden = label.dataset.way !== form.elements.way.value;
  }
}

// -- Python

let lastId = 0;
let isReady = false;
let asked = null;  // the question that is calculated
const waiting = new Map();  // kind -> the last question that waits for Python
let startedAt = performance.now();
function say(text, isBusy = false) {
  $("status").textContent = text;
  $("status").classList.toggle("busy", isBusy);
}

const seconds = (since) => `${((performance.now() - since) / 1000).toFixed(1)} s`;

function ask(kind, fields, isByReader) {
  waiting.set(kind, {kind, fields, isByReader});
  askNext();
}

function askNext() {
  if (!isReady || asked || !waiting.size) return;
  const [next] = waiting.values();
  waiting.delete(next.kind);
  asked = {id: ++lastId, since: performance.now(), ...next};
  if (next.kind === "plan") {
    $("results").setAttribute("aria-busy", "true");
    say(next.fields.gpus ? "Calculating." : "Calculating many numbers of GPUs.", true);
  }
  const content = JSON.stringify({kind: next.kind, fields: next.fields});
  worker.postMessage({id: lastId, question: content});
}

function takeAnswer({answer, failed}) {
  const {kind, since, isByReader} = asked;
  asked = null;
  if (failed) answer = {error: `A fault of the planner: ${failed}`};
  if (kind === "gpu") {
    showGpu(answer);
  } else {
    showPlan(answer);
    $("results").removeAttribute("aria-busy");
    say(answer.error ? "No plan." : `Calculated in ${seconds(since)}.`);
    if (isByReader && NARROW.matches) $("results").scrollIntoView();
    // the button that asked is gone
    if (isByReader && document.activeElement === document.body) {
      $("results-heading").focus();
    }
  }
  askNext();
}

function takeFailure(reason) {
  const why = reason.replace(/\.$/, "");
  say(`Python can't be loaded from ${pyodide}: ${why}. Try again when that address can `
    + "be reached, or run the planner in a terminal: python -m trainplan --help");
  $("status").classList.add("error");
}

const pyodide = $("packages").dataset.pyodide;
const script = new Blob([$("worker").textContent], {type: "text/javascript"});
const worker = new Worker(URL.createObjectURL(script));
worker.onmessage = ({data}) => {
  if (data.stage) {
    say(`${data.stage}. The first visit takes longer: it fetches 6 MB.`, true);
  } else if (data.ready) {
    isReady = true;
    document.documentElement.dataset.ready = seconds(startedAt);
    say("Ready.");
    askNext();
  } else if (isReady) {
    takeAnswer(data);
  } else {
    takeFailure(data.failed);
  }
};
const packed = atob($("packages").textContent);
const packages = Uint8Array.from(packed, (character) => character.charCodeAt(0));
worker.postMessage({start: {pyodide, packages}});

// -- events

function readAddress() {
  const fields = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  if (Object.keys(fields).length) {
    fill(fields);
    ask("plan", question(), false);
  } else {
    fill(example.fields);
    showPlan(example.answer);
  }
}

form.elements.way.onchange = showWay;
form.onsubmit = (event) => {
  event.preventDefault();
  const fields = question();
  history.pushState(null, "", `#${new URLSearchParams(fields)}`);
  ask("plan", fields, true);
};
gpuForm.onsubmit = (event) => {
  event.preventDefault();
  ask("gpu", {which: gpuForm.elements.which.value}, true);
};
addEventListener("popstate", readAddress);
readAddress();
