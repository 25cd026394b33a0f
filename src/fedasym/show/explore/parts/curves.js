// The loss along fine-tuning, and against the number of clients; both end at infinity, a step beyond their axis.

const GAP = 34; // between the last number and infinity
const COUNTED = ["0", "1", "3", "10", "30", "100", "300", "1000", "10⁴", "10⁵", "10⁶", "10⁷"];
const COUNTS_AT = [0, 1, 3, 10, 30, 100, 300, 1000, 1e4, 1e5, 1e6, 1e7];
const STAR = "M0 -9L2.6 -2.8 9 -2.8 4 1.2 5.8 8 0 4 -5.8 8 -4 1.2 -9 -2.8 -2.6 -2.8Z";

// Labels of an axis of counts, up to infinity; fewer on a narrow screen.
function counted(from_, last, width) {
  const shown = COUNTS_AT.map((value, at) => [value, COUNTED[at]]).filter(([value]) => value >= from_ && value <= last);
  return [...shown.filter(([, words]) => width > 480 || words[0] !== "3"), [Infinity, "∞"]];
}

// A group that shows nothing outside of the axes.
function clipped(svg, id, box) {
  const frame = { x: box.left - 6, y: box.top - 6, width: box.right - box.left + 13, height: box.bottom - box.top + 8 };
  const inside = drawn("g", { "clip-path": `url(#${id})` });
  svg.append(drawn("clipPath", { id }, drawn("rect", frame)), inside);
  return inside;
}

const rule = (x, box) => drawn("path", { d: `M${x.toFixed(1)} ${box.top}V${box.bottom}`, class: "cross" });

// `points` are {t, bias, variance, loss}, the last at convergence; `best` and `chosen` are such points too.
function drawPath(figure, { points, best, chosen }) {
  const { svg, width, height, show } = canvas(figure, 300), box = { left: 52, right: width - 84, top: 26, bottom: height - 44 };
  const steps = points.slice(0, -1), end = points.at(-1), last = steps.at(-1).t, span = box.right - GAP - box.left;
  const across = (t) => (t === Infinity ? box.right : box.left + (Math.log1p(Math.min(t, last)) / Math.log1p(last)) * span);
  const losses = points.map((each) => each.loss).filter(Number.isFinite), start = steps[0].loss;
  const most = 1.06 * Math.max(Math.min(Math.max(...losses), 4 * Math.min(...losses) || Infinity, 4 * start || Infinity), 1e-12);
  const up = (value) => box.bottom - (Math.min(value, 1.2 * most) / most) * (box.bottom - box.top);
  const levels = ticks(0, most, 5).map((each) => [each, number(each)]);
  axes(svg, box, across, up, counted(0, last, width), levels, { across: "gradient steps", up: "loss" });
  const inside = clipped(svg, "path-clip", box), labels = [];
  for (const [part, name, dash] of [["bias", "fedavg", "7 4"], ["variance", "ftfa", "2 3"], ["loss", "ink", "none"]]) {
    const at = steps.map((each) => [across(each.t), up(each[part])]), look = { class: `line m-${name}` };
    inside.append(drawn("path", { d: lineOf(at), ...look, "stroke-dasharray": dash, "data-part": part }));
    if (Number.isFinite(end[part])) {
      inside.append(drawn("path", { d: lineOf([at.at(-1), [box.right, up(end[part])]]), ...look, "stroke-dasharray": "1 4" }));
    }
    labels.push({ words: part, y: Number.isFinite(end[part]) ? up(end[part]) : box.top });
  }
  for (const [name, t, loss] of [["fedavg", 0, start], ["ftfa", Infinity, end.loss]]) {
    if (loss <= most) svg.append(drawn("g", { class: `m-${name}` }, mark(name, across(t), up(loss), 5.5)));
  }
  svg.append(rule(across(chosen.t), box));
  if (chosen.loss <= most) svg.append(drawn("circle", { cx: across(chosen.t), cy: up(chosen.loss), r: 6, class: "you" }));
  const place = `translate(${across(best.t).toFixed(1)} ${up(best.loss).toFixed(1)})`;
  svg.append(drawn("path", { d: STAR, class: "mark m-ink", transform: place }));
  ends(svg, labels, box.right + 10, box.top, box.bottom);
  const least = `least ${number(best.loss)} at ${best.t === Infinity ? "convergence" : `step ${best.t}`}`;
  show(`Loss along fine-tuning: ${number(start)} at the start, ${least}, ${number(end.loss)} at convergence.`);
}

// `columns` are {m, table}, the last of infinitely many clients.
function drawFederation(figure, { columns, clients, names }) {
  const { svg, width, height, show } = canvas(figure, 320), box = { left: 52, right: width - 104, top: 26, bottom: height - 44 };
  const last = columns.at(-2).m, limits = columns.at(-1).table, span = box.right - GAP - box.left;
  const across = (m) => (m === Infinity ? box.right : box.left + (Math.log(m) / Math.log(last)) * span);
  const most = tallest(names, limits, columns.find((each) => each.m === clients).table);
  const up = (value) => box.bottom - (Math.min(value, 1.5 * most) / most) * (box.bottom - box.top);
  const levels = ticks(0, most, 5).map((each) => [each, number(each)]);
  axes(svg, box, across, up, counted(1, last, width), levels, { across: "clients m", up: "loss" });
  const inside = clipped(svg, "federation-clip", box), spots = [];
  names.forEach((name, turn) => {
    const place = ({ m, table }) => [across(m), Number.isFinite(table[name].loss) ? up(table[name].loss) : NaN];
    const at = columns.map(place), group = drawn("g", { class: `m-${name}`, "data-series": name }), end = at.at(-1)[1];
    group.append(drawn("path", { d: lineOf(at.slice(0, -1)), class: "line" }));
    group.append(drawn("path", { d: lineOf(at.slice(-2)), class: "line", "stroke-dasharray": "1 4" }));
    at.forEach(([x, y], k) => { // markers in turn, so that lines that coincide can be told apart
      if (Number.isFinite(y) && (k % 3 === turn % 3 || k === at.length - 1)) group.append(mark(name, x, y, 4));
    });
    inside.append(group);
    const same = spots.find((spot) => Math.abs(spot.y - end) < 3);
    if (same) same.names.push(name);
    else if (Number.isFinite(end)) spots.push({ y: end, names: [name] });
  });
  ends(svg, spots.map((spot) => ({ words: shortened(spot.names), y: spot.y })), box.right + 10, box.top, box.bottom);
  svg.append(rule(across(clients), box));
  const told = names.map((name) => `${name} ${number(limits[name].loss)}`).join(", ");
  show(`Losses against the number of clients. With infinitely many: ${told}.`);
}

// The top of the axis: what is far above the rest may leave it.
function tallest(names, limits, now) {
  const of = (table) => names.map((name) => table[name].loss).filter(Number.isFinite), least = Math.min(...of(limits));
  const seen = [...of(limits).filter((each) => each <= 4 * least), ...of(now).filter((each) => each <= 6 * least)];
  return Math.max(1.3 * Math.max(...seen), 1e-12);
}

// Names that share a label, as far as there is room.
function shortened(names) {
  if (names.length === 2 && names.join().length < 13) return names.join(", ");
  return names[0] + (names.length > 1 ? ", …" : "");
}
