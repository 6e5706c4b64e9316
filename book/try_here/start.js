// The last part of the page's one script, below the editor's, steps.js and schedule.js.
const data = JSON.parse(document.getElementById("try-data").textContent);

// The schedule editor, with a choice of puzzles and a table of what ranks wait for.
function schedules(place, puzzles) {
  const choice = made("select");
  puzzles.forEach(({ room }) => choice.append(made("option", {}, `${room}`)));
  const label = made("label", {}, "Micro-batches that a rank may hold ", choice);
  const again = button("From the start", begin);
  const editor = made("div");
  const rows = made("tbody");
  const heads = ["", "waits, in forwards", "holds at most"];
  const cells = heads.map((text) => made(text ? "th" : "td", text ? { scope: "col" } : {}, text));
  const table = made("table", { class: "try-waits" },
    made("caption", {}, "What the ranks wait for"),
    made("thead", {}, made("tr", {}, ...cells)), rows);

  function tell(plan) {
    rows.replaceChildren(...plan.map(([rank, ...texts]) => made("tr", {},
      made("th", { scope: "row" }, rank), ...texts.map((text) => made("td", {}, `${text}`)))));
  }
  function begin() {
    const model = schedule(puzzles[choice.selectedIndex], tell);
    editor.replaceChildren();
    render({ model, el: editor });
  }
  choice.onchange = begin;
  place.replaceChildren(made("div", { class: "try-buttons" }, label, again), editor, table);
  begin();
}

schedules(document.getElementById("try-schedule"), data.schedules);
player(document.getElementById("try-threads"), data.threads);
player(document.getElementById("try-puzzles"), data.puzzles);
