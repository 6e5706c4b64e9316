// A pipeline schedule without a kernel: what trainplan.schedule.simulate calculates where
// a forward takes 1, a backward 2, and transfers nothing. Times are in forwards.
const SECONDS = { F: 1, B: 2 };

// The rank whose step of the same name has to end first; -1 for none.
function giver(name, rank, ranks) {
  if (name[0] === "F") return rank - 1;
  return rank + 1 < ranks ? rank + 1 : -1;
}

// Why a rank's own order is impossible; "" where it isn't.
function wrongOrder(steps, rank) {
  const early = steps.find((name, place) => {
    const forward = `F${name.slice(1)}`;
    return name[0] === "B" && steps.indexOf(forward) > place;
  });
  if (!early) return "";
  const forward = `F${early.slice(1)}`;
  return `Rank ${rank} does ${early} before ${forward}. Put ${forward} in front of ${early}.`;
}

// Who waits for whom in a circle, in words; `at` has the step at which each rank waits.
function deadlock(at) {
  const ranks = at.length;
  const path = [];
  let rank = at.findIndex((name) => name);
  while (!path.includes(rank)) {
    path.push(rank);
    rank = giver(at[rank], rank, ranks);
  }
  const circle = path.slice(path.indexOf(rank));
  const links = circle.map((r) => `waits at ${at[r]} for rank ${giver(at[r], r, ranks)}`);
  const chain = `The schedule deadlocks: rank ${circle[0]} ${links.join(", which ")}.`;
  return `${chain} Put what is waited for in front of one of these steps.`;
}

function mostHeld(steps) {
  let now = 0;
  return Math.max(...steps.map((name) => (now += name[0] === "F" ? 1 : -1)), 0);
}

// The plan of an order, a list of steps for each rank, or `refused`, why there is none.
export function simulate(order) {
  const refused = order.map(wrongOrder).find((reason) => reason);
  if (refused) return { refused };
  const ranks = order.length;
  const ends = new Map();
  const free = order.map(() => 0);
  const count = order.map(() => 0);
  const starts = order.map(() => []);
  const waits = order.map(() => []);
  let before = -1;
  while (before !== ends.size) {
    before = ends.size;
    for (let rank = 0; rank < ranks; rank++) {
      for (const name of order[rank].slice(count[rank])) {
        const from = giver(name, rank, ranks);
        const arrives = from < 0 ? 0 : ends.get(`${from} ${name}`);
        if (arrives === undefined) break;
        const start = Math.max(free[rank], arrives);
        if (start > free[rank]) waits[rank].push({ name, from, took: start - free[rank] });
        starts[rank].push(start);
        free[rank] = start + SECONDS[name[0]];
        ends.set(`${rank} ${name}`, free[rank]);
        count[rank] += 1;
      }
    }
  }
  const at = order.map((steps, rank) => steps[count[rank]]);
  if (at.some((name) => name)) return { refused: deadlock(at) };
  return { starts, waits, held: order.map(mostHeld), time: Math.max(...free) };
}

// What a rank waits for, in words.
function waitWords(waits, end, last) {
  const words = waits.map(({ name, from, took }) => `${took} at ${name} for rank ${from}`);
  if (last > end) words.push(`${last - end} after its last step`);
  return words.join(", ") || "never";
}

function waitRows(plan, order) {
  return order.map((steps, rank) => {
    const end = plan.starts[rank].at(-1) + SECONDS[steps.at(-1)[0]];
    return [`rank ${rank}`, waitWords(plan.waits[rank], end, plan.time), plan.held[rank]];
  });
}

// The rest of what is said: par and the reader's best, or who holds too much.
function scored(plan, { room, par, best }) {
  const most = Math.max(...plan.held);
  if (most > room) {
    const rank = plan.held.indexOf(most);
    const much = `Rank ${rank} holds ${most} micro-batches at once, and ${room} are allowed`;
    return `${much}: put a B in front of a later F.`;
  }
  return `Yours ${plan.time}, par ${par}, your best since you opened this page ${best}.`;
}

// What the editor's `render` talks to in place of a kernel. `onPlan` gets each plan, and
// the puzzle keeps the reader's best.
export function schedule(puzzle, onPlan) {
  const state = { steps: [], said: "" };
  const listeners = {};
  let order = puzzle.order.map((steps) => [...steps]);
  let longest = 0;

  function set(name, value) {
    state[name] = value;
    (listeners[`change:${name}`] ?? []).forEach((listener) => listener());
  }
  function show(plan) {
    longest = Math.max(longest, plan.time);
    if (Math.max(...plan.held) <= puzzle.room) {
      puzzle.best = Math.min(puzzle.best ?? Infinity, plan.time);
    }
    const busy = order.flat().reduce((sum, name) => sum + SECONDS[name[0]], 0);
    const idle = 1 - busy / (order.length * plan.time);
    const share = `the ranks are idle for ${Math.round(100 * idle)} % of it`;
    set("steps", order.flatMap((steps, rank) => steps.map((name, i) => {
      const start = plan.starts[rank][i];
      const took = SECONDS[name[0]];
      const text = `rank ${rank}: ${name}, ${start} to ${start + took}`;
      return [rank, name, start / longest, took / longest, text];
    })));
    const takes = `This order takes ${plan.time} forwards, and ${share}.`;
    set("said", `${takes} ${scored(plan, puzzle)}`);
    onPlan(waitRows(plan, order));
  }
  const model = {
    get: (name) => state[name],
    on: (event, listener) => (listeners[event] ??= []).push(listener),
    send({ rank, name, by }) {
      const changed = order.map((steps) => [...steps]);
      const place = changed[rank].indexOf(name);
      const [moved] = changed[rank].splice(place, 1);
      changed[rank].splice(Math.max(place + by, 0), 0, moved);
      const plan = simulate(changed);
      if (plan.refused) {
        set("said", `${name} of rank ${rank} stays where it was. ${plan.refused}`);
        return;
      }
      order = changed;
      show(plan);
    },
  };
  show(simulate(order));
  return model;
}
