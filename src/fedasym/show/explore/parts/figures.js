// Bars of losses, and the diagram of who wins where. Each takes what was computed, draws it, and says it in words.

// Bias and variance as bars; `rows` are {name, words, bias, variance, loss, best, hollow}.
function drawBars(figure, rows) {
  const { svg, width, show } = canvas(figure, rows.length * 28 + 4), left = 118, right = width - 62;
  const finite = rows.map((row) => row.loss).filter(Number.isFinite), least = Math.min(...finite);
  const most = Math.max(Math.min(Math.max(...finite), 6 * least || Infinity), 1e-12);
  const scale = (value) => ((right - left) * Math.min(value, most)) / most;
  rows.forEach((row, at) => {
    const y = 4 + at * 28, bias = scale(row.bias), both = scale(row.loss), look = row.best ? "strongly" : "";
    const group = drawn("g", { class: `m-${row.name}` });
    group.append(mark(row.name, 10, y + 10, 5.5, row.hollow ? "hollow" : "mark"), text(22, y + 14, row.words, { class: look }));
    if (bias > 0) group.append(drawn("rect", { x: left, y, width: bias, height: 20, class: "bias" }));
    if (both > bias) {
      group.append(drawn("rect", { x: left + bias, y: y + 0.5, width: both - bias, height: 19, class: "variance" }));
    }
    const cut = row.loss > most * (1 + 1e-9) ? "▸ " : ""; // too long to be drawn
    group.append(text(left + both + 6, y + 14, cut + number(row.loss), { class: look }));
    svg.append(group);
  });
  show(`Bars of losses: ${rows.map((row) => `${row.words} ${number(row.loss)}`).join(", ")}.`);
}

const HATCHES = { // what tells regions apart without colour; ftfa has none
  local_ridge: "M0 5H10M5 0V10",
  fedavg: "M-2 2L2 -2M0 10L10 0M8 12L12 8",
  rtfa: "M0 5H10",
  maml: "M-2 8L2 12M0 0L10 10M8 -2L12 2",
  pfedme: "M5 0V10",
  pfedme_ridge: "M3 0V10M7 0V10",
};
const SHARING = Object.keys(ALGORITHMS).filter((name) => ALGORITHMS[name][0] !== "nothing").join(" = ");
const together = (who) => (who === SHARING ? "all that share" : who);
const TENFOLD = [0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000];

// Regions of the winners over noise (across) and aspect (up); `cells[j][i]` names the winner, or several: "ftfa = maml".
function drawDiagram(figure, { cells, x, y, point }, choose) {
  const { svg, width, height, show } = canvas(figure, 380), box = { left: 48, right: width - 12, top: 26, bottom: height - 44 };
  const across = (value) => box.left + ((value - x.low) / (x.high - x.low)) * (box.right - box.left);
  const up = (value) => box.bottom - (Math.log(value / y.low) / Math.log(y.high / y.low)) * (box.bottom - box.top);
  const areas = areasOf(cells);
  const patterns = drawn("defs");
  svg.append(patterns);
  for (const { who, name } of areas) {
    patterns.append(hatched(name));
    const d = outline(cells, who, box);
    svg.append(drawn("path", { d, class: `region m-${name}`, "data-region": name }), drawn("path", { d, fill: `url(#hatch-${name})` }));
  }
  const sideways = ticks(x.low, x.high, 6).map((each) => [each, number(each)]);
  const upwards = TENFOLD.filter((each) => each >= y.low && each <= y.high).map((each) => [each, number(each)]);
  axes(svg, box, across, up, sideways, upwards, { across: "noise σ", up: "aspect γ" });
  for (const area of areas) if (area.share > 0.005) label(svg, cells, area, box);
  const px = across(point.noise), py = up(point.aspect);
  svg.append(drawn("path", { d: `M${px} ${box.top}V${box.bottom}M${box.left} ${py}H${box.right}`, class: "cross" }));
  svg.append(drawn("circle", { cx: px, cy: py, r: 6, class: "you" }));
  svg.addEventListener("click", (event) => {
    const frame = svg.getBoundingClientRect();
    const right = (((event.clientX - frame.left) / frame.width) * width - box.left) / (box.right - box.left);
    const above = (box.bottom - ((event.clientY - frame.top) / frame.height) * height) / (box.bottom - box.top);
    if (Math.min(right, above) < 0 || Math.max(right, above) > 1) return;
    choose({ noise: rounded(x.low + right * (x.high - x.low)), aspect: rounded(y.low * (y.high / y.low) ** above) });
  });
  const shares = areas.map(({ who, share }) => `${together(who)} on ${percent(share)}`).join(", ");
  const where = `your population is at noise ${number(point.noise)}, aspect ${number(point.aspect)}`;
  show(`Winners by noise and aspect: ${shares}; ${where}.`);
  return shares;
}

// Who wins somewhere, and on which share of the cells; largest first.
function areasOf(cells) {
  const counts = new Map();
  for (const who of cells.flat()) counts.set(who, (counts.get(who) ?? 0) + 1);
  const areas = [...counts].map(([who, count]) => ({ who, name: who.split(" ")[0], share: count / (cells.length * cells[0].length) }));
  return areas.sort((a, b) => b.share - a.share);
}

function hatched(name) {
  const size = name === "local" ? 6 : 10, units = { patternUnits: "userSpaceOnUse", class: `m-${name}` };
  const pattern = drawn("pattern", { id: `hatch-${name}`, width: size, height: size, ...units });
  if (name === "local") pattern.append(drawn("circle", { cx: 3, cy: 3, r: 1.3, class: "hatch dot" }));
  else if (HATCHES[name]) pattern.append(drawn("path", { d: HATCHES[name], class: "hatch" }));
  return pattern;
}

// The cells of a region as one path, row by row.
function outline(cells, who, box) {
  const columns = cells[0].length, dx = (box.right - box.left) / columns, dy = (box.bottom - box.top) / cells.length;
  let path = "";
  cells.forEach((row, j) => {
    for (let i = 0; i < columns; i++) {
      if (row[i] !== who) continue;
      const start = i;
      while (i + 1 < columns && row[i + 1] === who) i++;
      const left = (box.left + start * dx).toFixed(1), right = (box.left + (i + 1) * dx).toFixed(1);
      path += `M${left} ${(box.bottom - (j + 1) * dy).toFixed(2)}H${right}v${dy.toFixed(2)}H${left}z`;
    }
  });
  return path;
}

// A region's marker and name, in its middle.
function label(svg, cells, { who, name, share }, box) {
  const words = together(who), half = 3.4 * words.length + 4, spot = middle(cells, who);
  const within = (value, low, high) => Math.min(Math.max(value, low), high);
  const x = within(box.left + ((spot.i + 0.5) / cells[0].length) * (box.right - box.left), box.left + half, box.right - half);
  const y = within(box.bottom - ((spot.j + 0.5) / cells.length) * (box.bottom - box.top), box.top + 20, box.bottom - 14);
  if (share > 0.03) svg.append(drawn("g", { class: `m-${name}` }, mark(name, x, y - 12, 6)));
  svg.append(text(x, y + 8, words, { "text-anchor": "middle", class: "strongly halo" }));
}

// The cell of a region that is furthest from its border: two sweeps of distances.
function middle(cells, who) {
  const rows = cells.length, columns = cells[0].length;
  const depth = cells.map((row) => row.map((each) => (each === who ? rows + columns : 0)));
  const at = (j, i) => depth[j]?.[i] ?? 0;
  for (let j = 0; j < rows; j++) {
    for (let i = 0; i < columns; i++) depth[j][i] = Math.min(depth[j][i], at(j - 1, i) + 1, at(j, i - 1) + 1);
  }
  let best = { j: 0, i: 0 };
  for (let j = rows - 1; j >= 0; j--) {
    for (let i = columns - 1; i >= 0; i--) {
      depth[j][i] = Math.min(depth[j][i], at(j + 1, i) + 1, at(j, i + 1) + 1);
      if (depth[j][i] > depth[best.j][best.i]) best = { j, i };
    }
  }
  return best;
}
