// Draws the steps of a schedule. One that is dragged, or moved with the arrow keys, is sent to Python: its rank, its
// name, and by how many places. Python answers with new `steps`, or says why not.
const COLORS = { F: "#56B4E9", B: "#D55E00", W: "#F0E442" }; // as in lab.plot.gantt
const LEAST_PX = 24; // of a step, for a finger (WCAG 2.2, 2.5.8): a longer schedule is scrolled sideways

function block([name, left, width, label], place, rank, move) {
  const button = document.createElement("button");
  button.textContent = name;
  button.dataset.step = `${rank} ${name}`;
  button.title = label;
  button.setAttribute("aria-label", label);
  button.style.cssText = `position:absolute;left:${100 * left}%;width:${100 * width}%;height:100%;padding:0;cursor:grab;
    border:1px solid #404040;background:${COLORS[name[0]]};color:#000;overflow:hidden;font-size:12px;touch-action:none`;
  button.onkeydown = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook would go to another cell
    move(rank, name, by);
  };
  button.onpointerdown = ({ clientX, pointerId }) => {
    button.setPointerCapture(pointerId);
    button.style.zIndex = 1;
    button.onpointermove = (event) => (button.style.transform = `translateX(${event.clientX - clientX}px)`);
    button.onpointerup = button.onpointercancel = () => {
      const middle = (e) => e.getBoundingClientRect().left + e.offsetWidth / 2;
      const before = [...button.parentElement.children].filter((e) => e !== button && middle(e) < middle(button));
      button.onpointermove = button.onpointerup = button.onpointercancel = null;
      button.style.transform = button.style.zIndex = "";
      if (before.length !== place) move(rank, name, before.length - place);
    };
  };
  return button;
}

function render({ model, el }) {
  el.innerHTML = `<div role="group" aria-label="Schedule: drag a step, or move it with the left and right arrow keys"
    style="display:grid;grid-template-columns:auto 1fr;gap:3px 1em;max-width:60em;overflow-x:auto"></div>
    <p role="status" style="max-width:48em;line-height:1.4"></p>`;
  el.style.color = "var(--jp-content-font-color1, inherit)";
  const [chart, said] = el.children;
  const move = (rank, name, by) => model.send({ rank, name, by });
  const draw = () => {
    const held = chart.contains(document.activeElement) && document.activeElement.dataset.step;
    const wide = LEAST_PX / Math.min(...model.get("steps").map(([, , , width]) => width));
    chart.replaceChildren();
    for (const [rank, ...step] of model.get("steps")) {
      if (!chart.children[2 * rank]) {
        const row = `<span style="white-space:nowrap">rank ${rank}</span>
          <div style="position:relative;height:2.2em;min-width:${wide}px"></div>`;
        chart.insertAdjacentHTML("beforeend", row);
      }
      chart.lastChild.append(block(step, chart.lastChild.children.length, rank, move));
    }
    if (held) chart.querySelector(`[data-step="${held}"]`).focus();
  };
  const say = () => (said.textContent = model.get("said"));
  model.on("change:steps", draw);
  model.on("change:said", say);
  draw();
  say();
}

export default { render };
