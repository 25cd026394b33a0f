// Wires it together: a change computes the numbers at once, and the figures in slices, first coarse, then fine.

const COARSE = { search: { points: 18, rounds: 12 }, nodes: 10, most: 10, arc: 8 };
const MEDIUM = { search: { points: 24, rounds: 16 }, nodes: 24, most: 96 }; // to see who wins
const COARSE_POINTS = 12; // of a continuous spectrum
const SHOWN_CLIENTS = [1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 30, 50, 100, 200, 500, 1000];
const FIRST = [0, 1, 2, 3, 10, 100]; // steps whose numbers are listed
const SLICE = 12; // milliseconds
const REST = 100; // milliseconds without a change before the fine figures are begun
const $ = (id) => document.getElementById(id);

let state = { ...START };
let table = {};

// Two works at most: the coarse one always ends, so that figures follow a moving slider; the fine one gives way to it, and
// waits for the slider to rest.
const work = { coarse: null, fine: null, again: false, timer: 0, rest: 0 };

function schedule() {
  if (work.coarse) work.again = true;
  else work.coarse = figures(COARSE, COARSE_POINTS);
  work.fine = null;
  work.rest = performance.now() + REST;
  if (!work.timer) work.timer = setTimeout(slice, 0);
  document.documentElement.dataset.busy = "true"; // for whoever waits for the last digit
}

function slice() {
  const until = performance.now() + SLICE, rested = performance.now() >= work.rest;
  try {
    while ((work.coarse || (work.fine && rested)) && performance.now() < until) advance(work.coarse ? "coarse" : "fine");
  } finally { // whatever happens, the next slider move is answered
    const pause = work.coarse ? 0 : work.rest - performance.now();
    work.timer = work.coarse || work.fine ? setTimeout(slice, Math.max(0, pause)) : 0;
    document.documentElement.dataset.busy = String(Boolean(work.timer));
  }
}

function advance(kind) {
  if (!work[kind].next().done) return;
  work[kind] = null;
  if (kind === "fine") return;
  if (work.again) work.coarse = figures(COARSE, COARSE_POINTS);
  else work.fine = figures(FINE, null);
  work.again = false;
}

function* figures(precision, points) {
  const now = { ...state }, fine = points === null;
  yield* path(now, precision, points);
  yield* diagram(now, fine ? MEDIUM : COARSE, fine ? [64, 48] : [24, 16]);
  yield* federation(now, precision, points);
  if (fine) $("heard").textContent = $("words").textContent;
}

function* path(now, precision, points) {
  const figure = $("path");
  const { found, instead } = yield* nearestPath(viewOf(now, points), precision);
  const { step, longest, at } = found, shown = Math.max(10, Math.min(longest, 1e4)), times = new Set(FIRST);
  for (let i = 0; i <= 36; i++) times.add(Math.round(shown ** (i / 36)));
  const risk_ = (t) => {
    const { bias, variance } = at(t);
    return { t, bias, variance, loss: bias + variance };
  };
  const drawnPoints = [];
  for (const t of [...times].sort((a, b) => a - b).concat(Infinity)) {
    drawnPoints.push(risk_(t));
    yield;
  }
  const told = { points: drawnPoints, best: risk_(yield* bestStop(at, longest)), chosen: risk_(now.steps), step, instead };
  drawPath(figure, told);
  figure.querySelector("figcaption").textContent = pathWords(told);
  if (points !== null) return;
  if (!instead && !quick(now)) showLosses(stoppedRow(told.chosen));
  const some = [...drawnPoints.filter(({ t }) => [...FIRST, Infinity].includes(t)), told.chosen, told.best].sort((a, b) => a.t - b.t);
  const name = (t) => (t === Infinity ? "convergence" : `${t} steps`) + (t === told.best.t ? ", the best" : "");
  const rows = some.filter(({ t }, k) => t !== some[k - 1]?.t).map(({ t, loss, bias, variance }) => [name(t), loss, bias, variance]);
  fill(figure.querySelector("table"), ["stop after", "loss", "bias", "variance"], rows);
}

// The path that was asked for or, where there is no formula, that of a newcomer or of infinitely many clients, with a word.
function* nearestPath(view, precision) {
  const others = [[view, ""], [{ ...view, member: false }, "a newcomer"], [{ ...view, clients: Infinity }, "infinitely many clients"]];
  let missing = "";
  for (const [asked, whose] of others) {
    try {
      return { found: yield* fineTuning(asked, precision), instead: whose && `This is the path of ${whose}: ${missing}.` };
    } catch (reason) {
      if (!(reason instanceof NoFormula)) throw reason;
      missing ||= `${view.member ? "for members " : ""}${reason.message}`;
    }
  }
}

function* diagram(now, precision, [columns, rows]) {
  const x = { low: 0, high: Math.max(2, 1.25 * now.noise) };
  const y = { low: Math.min(0.1, now.aspect / 1.5), high: Math.max(20, now.aspect * 1.5) };
  const among = AMONG[now.among], cells = [], view = viewOf(now, COARSE_POINTS);
  for (let j = 0; j < rows; j++) {
    const aspect = y.low * (y.high / y.low) ** ((j + 0.5) / rows), row = [];
    for (let i = 0; i < columns; i++) {
      const losses = predict({ ...view, aspect, noise: x.low + ((x.high - x.low) * (i + 0.5)) / columns }, among, precision);
      row.push(winners(losses).join(" = "));
      yield;
    }
    cells.push(row);
  }
  const here = winners(predict(viewOf(now), among));
  const shares = drawDiagram($("diagram"), { cells, x, y, point: now }, (change) => set(change, "diagram"));
  $("diagram").querySelector("figcaption").textContent = diagramWords(shares, here);
}

function* federation(now, precision, points) {
  const figure = $("federation"), names = Object.keys(ALGORITHMS), view = viewOf(now, points), columns = [];
  for (const m of [...new Set([...SHOWN_CLIENTS, now.clients, Infinity])].sort((a, b) => (a < b ? -1 : 1))) {
    columns.push({ m, table: predict({ ...view, clients: m }, names, precision) });
    yield;
  }
  const told = { columns, clients: now.clients, names };
  drawFederation(figure, told);
  figure.querySelector("figcaption").textContent = federationWords(now, told);
  if (points !== null) return;
  const row = ({ m, table: each }) => [m === Infinity ? "∞" : String(m), ...names.map((name) => each[name].loss ?? null)];
  fill(figure.querySelector("table"), ["clients", ...names], columns.map(row));
}

// The numbers, the bars and the words: at once.
function compute() {
  table = predict(viewOf(state));
  showLosses(state.steps === Infinity ? [] : earlyStop());
  const missing = Object.entries(table).filter(([, row]) => row.missing);
  $("missing").replaceChildren(...missing.map(([name, row]) => made("li", {}, `${name}: ${row.missing}.`)));
  $("words").textContent = verdict(state, table);
  $("short").textContent = brief(table);
  $("command").textContent = commandOf(state);
  if (state.tab === "rounds") computeRounds();
}

function showLosses(early) {
  const best = winners(table), least = table[best[0]].loss;
  const known = Object.entries(table).filter(([, row]) => row.loss !== undefined);
  const rows = known.map(([name, row]) => ({ name, key: name, words: name, ...row, best: best.includes(name) })).concat(early);
  drawBars($("bars"), rows);
  $("losses").tBodies[0].replaceChildren(...rows.map((row) => {
    const above = row.best ? "the best" : Number.isFinite(row.loss) && least > 0 ? `+${percent(row.loss / least - 1)}` : "–";
    const name = made("th", { scope: "row", class: "text" }, badge(row.name, row.hollow ? "hollow" : "mark"), row.words);
    const cells = [row.loss, row.bias, row.variance, row.ridge].map(cell);
    return made("tr", { "data-name": row.key, class: row.best ? "best" : "" }, name, ...cells, made("td", {}, above));
  }));
}

// ftfa stopped after the chosen number of steps, a row of its own; none where the path has no formula. Where it takes long, a
// few points of the spectrum do until the path is drawn.
const quick = (now) => now.kind === "identity" || (now.shift_power === 0 && now.clients === Infinity);

function earlyStop() {
  try {
    return stoppedRow(finish(fineTuning(viewOf(state, quick(state) ? null : COARSE_POINTS), FINE, state.steps)).at(state.steps));
  } catch (reason) {
    if (!(reason instanceof NoFormula)) throw reason;
    return [];
  }
}

function stoppedRow({ bias, variance }) {
  if (state.steps === Infinity) return [];
  const words = `ftfa, ${state.steps} step${state.steps === 1 ? "" : "s"}`;
  return [{ name: "ftfa", key: "stopped", words, hollow: true, bias, variance, loss: bias + variance, ridge: null, best: false }];
}

function refresh() {
  compute();
  schedule();
}

// A change by the user: a run of changes of one control is one step back.
let changed = { control: "", at: 0 };
function set(change, control, { settle = true } = {}) {
  Object.assign(state, change);
  tell(withoutZeros(state));
  showControls(state);
  refresh();
  if (settle) remember(control);
}

// What could not be used as it was given.
function tell(sentences) {
  $("notes").textContent = sentences.join(" ");
  $("notes").hidden = sentences.length === 0;
}

function remember(control) {
  const address = addressOf(state);
  if (address === location.hash) return;
  const again = control === changed.control && performance.now() - changed.at < 1500;
  history[again ? "replaceState" : "pushState"](null, "", address);
  changed = { control, at: performance.now() };
}

function visit() {
  const { state: found, wrong } = readAddress(location.hash);
  state = found;
  changed = { control: "", at: 0 };
  tell(wrong);
  showControls(state);
  showTab(state.tab);
  refresh();
}

makeControls(set);
makeTabs((tab) => set({ tab }, "tab"));
makeData((change) => set({ ...change, tab: "theory" }, "data"));
$("reset").addEventListener("click", () => set({ ...START }, "reset"));
addEventListener("popstate", visit);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) (width = innerWidth), refresh();
});
visit();
