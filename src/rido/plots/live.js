
const $ = id => document.getElementById(id);
const digits = number => number == null ? "" : number.toLocaleString("en", { maximumSignificantDigits: 6 });
const node = (name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const cells = (texts, kind) => {
  const row = document.createElement("tr");
  for (const [column, text] of texts.entries()) {
    const cell = document.createElement(column === 0 ? "th" : kind);
    cell.textContent = text;
    row.append(cell);
  }
  return row;
};

// Maps numbers to a picture of 320 x 180 with room for the numbers at its ends.
function axes(svg, [left, right], [low, high]) {
  const x = value => 48 + 262 * (value - left) / (right - left || 1);
  const y = value => 155 - 145 * (value - low) / (high - low || 1);
  const text = { "font-size": 11, fill: "currentColor" };
  svg.replaceChildren(
    node("path", { d: "M48 10V155H310", fill: "none", stroke: "currentColor" }),
    node("text", { ...text, x: 44, y: 18, "text-anchor": "end" }, digits(high)),
    node("text", { ...text, x: 44, y: 155, "text-anchor": "end" }, digits(low)),
    node("text", { ...text, x: 48, y: 172 }, digits(left)),
    node("text", { ...text, x: 310, y: 172, "text-anchor": "end" }, digits(right)));
  return [x, y];
}

function drawRounds(rounds) {
  const known = rounds.filter(([, , low, high]) => low !== null && high !== null);
  $("rounds").hidden = known.length === 0;
  if (known.length === 0) return;
  const ends = known.slice(-Math.ceil(known.length * 0.8)).flatMap(([, , low, high]) => [low, high]);
  const round = number => Number(number.toPrecision(3));
  const [low, high] = [round(Math.min(...ends)), round(Math.max(...ends))];
  const svg = $("rounds").querySelector("svg");
  const [x, y] = axes(svg, [0, known.at(-1)[0]], [low, high]);
  const inside = value => y(Math.min(Math.max(value, low), high));
  const band = [...known.map(([at, , , top]) => [x(at), inside(top)]), ...known.toReversed().map(([at, , bottom]) => [x(at), inside(bottom)])];
  svg.append(
    node("polygon", { points: band.join(" "), fill: "var(--main)", opacity: 0.25 }),
    node("polyline", { points: known.map(([at, value]) => [x(at), inside(value)]).join(" "), fill: "none", stroke: "var(--main)", "stroke-width": 2 }));
}

function drawCounts(counts, steps) {
  $("counts").hidden = counts.length === 0;
  const svg = $("counts").querySelector("svg");
  const [x, y] = axes(svg, [0, steps], [0, Math.max(...counts, 1)]);
  const corners = counts.flatMap((count, index) => [index, index + 1].map(at => [x(at * steps / counts.length), y(count)]));
  svg.append(node("polygon", { points: [[x(0), y(0)], ...corners, [x(steps), y(0)]].join(" "), fill: "var(--main)" }));
}

// What depends on the time: how long ago something was written, and whether the workers that were alive then may still be.
let changed = null;
let last = {};
function tick() {
  if (changed === null) return;
  const silent = Math.max(0, Date.now() - (last.written ? 1000 * last.written : changed)) / 1000;
  $("when").textContent = `updated ${Math.round(silent)} s ago`;
  $("workers").parentElement.hidden = !last.workers;
  if (!last.workers) return;
  const [alive, all] = last.workers;
  const known = alive === 0 || silent <= last.patience;
  $("workers").textContent = known ? `${alive} of ${all}` : `unknown: nothing has been written for ${Math.round(silent)} s`;
}

const source = new EventSource("events");
source.addEventListener("message", event => {
  const state = JSON.parse(event.data);
  [changed, last] = [Date.now(), state];
  tick();
  document.title = $("title").textContent = state.title;
  $("value").textContent = state.kind === "waiting" ? "waiting for the file" : state.value;
  for (const name of ["transitions", "budget", "trajectories", "seconds", "forecast"]) {
    $(name).textContent = digits(state[name] == null ? null : Math.round(state[name]));
    $(name).dataset.value = state[name] ?? "";
    $(name).parentElement.hidden = state[name] == null;
  }
  $("warnings").replaceChildren(...[...(state.warnings ?? []), ...(state.problem ? [state.problem] : [])].map(text => {
    const card = document.createElement("p");
    card.className = "card warning";
    card.textContent = text;
    return card;
  }));
  $("table").hidden = !state.rows;
  if (state.rows) {
    $("table").querySelector("thead").replaceChildren(cells(state.columns, "th"));
    $("table").querySelector("tbody").replaceChildren(...state.rows.map(row => cells(row, "td")));
  }
  drawRounds(state.rounds ?? []);
  drawCounts(state.counts ?? [], state.horizon ?? 0);
});
source.addEventListener("error", () => { changed = null; $("when").textContent = "the server has stopped; trying again"; });
setInterval(tick, 500);
