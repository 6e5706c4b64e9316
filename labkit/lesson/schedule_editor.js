// Draws the steps of a schedule. One that is dragged, or moved with the arrow keys, goes to Python as `move`: rank, old
// place, new place. Python answers with new `rows`, or says why not.
const COLORS = { F: "#56B4E9", B: "#E69F00", W: "#F0E442" };

function render({ model, el }) {
  const chart = document.createElement("div");
  chart.style.cssText = "max-width:60em;touch-action:none";
  chart.setAttribute("role", "group");
  chart.setAttribute("aria-label", "Schedule: drag a step, or move it with the arrow keys");
  const said = document.createElement("p");
  said.setAttribute("role", "status"); // screen readers read it out when it changes
  said.style.cssText = "max-width:48em;line-height:1.4;color:var(--jp-content-font-color1, inherit)";
  el.append(chart, said);

  function move(rank, from, to) {
    if (to === from || to < 0 || to >= model.get("rows")[rank].length) return;
    model.set("move", [rank, from, to, Date.now()]); // the time tells a move that is tried again from no move
    model.save_changes();
  }

  function block([name, left, width, label], place, rank) {
    const button = document.createElement("button");
    button.textContent = name;
    button.dataset.step = `${rank} ${name}`;
    button.setAttribute("aria-label", label);
    button.title = label;
    button.style.cssText = `position:absolute;left:${100 * left}%;width:${100 * width}%;height:100%;padding:0;cursor:grab;
      border:1px solid #404040;background:${COLORS[name[0]]};color:#000;overflow:hidden;font-size:12px`;
    button.onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation(); // the notebook would go to another cell
      move(rank, place, place + by);
    };
    button.onpointerdown = ({ clientX, pointerId }) => {
      button.setPointerCapture(pointerId);
      button.style.zIndex = 1;
      button.onpointermove = (event) => (button.style.transform = `translateX(${event.clientX - clientX}px)`);
      button.onpointerup = button.onpointercancel = () => {
        const middle = (e) => e.getBoundingClientRect().left + e.offsetWidth / 2;
        const others = [...button.parentElement.children].filter((e) => e !== button);
        const to = others.filter((e) => middle(e) < middle(button)).length;
        button.onpointermove = button.onpointerup = button.onpointercancel = null;
        button.style.transform = button.style.zIndex = "";
        move(rank, place, to);
      };
    };
    return button;
  }

  function draw() {
    const held = chart.contains(document.activeElement) && document.activeElement.dataset.step;
    chart.replaceChildren(
      ...model.get("rows").map((steps, rank) => {
        const row = document.createElement("div");
        row.style.cssText = "position:relative;height:2.2em;margin:3px 0;background:rgba(128,128,128,.15)";
        row.append(...steps.map((step, place) => block(step, place, rank)));
        return row;
      }),
    );
    if (held) chart.querySelector(`[data-step="${held}"]`)?.focus();
  }

  const say = () => (said.textContent = model.get("said"));
  model.on("change:rows", draw);
  model.on("change:said", say);
  draw();
  say();
}

export default { render };
