// Small pieces of SVG and HTML; text is always set as text, so that no name can become markup.

const SVG = "http://www.w3.org/2000/svg";
const MARKS = JSON.parse(document.getElementById("marks").textContent); // each algorithm's marker, of radius 10 around the origin

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, typeof value === "number" ? Number(value.toFixed(2)) : value);
  }
  made.append(...children);
  return made;
}

function made(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return "∞";
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-4)) return value.toExponential(2).replace("-", "−");
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

const percent = (share) => (share > 0 && share < 0.01 ? "less than 1 %" : `${Math.round(100 * share)} %`);

function listedNames(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

function mark(name, x, y, radius = 4.5, look = "mark") {
  const transform = `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${radius / 10})`;
  return drawn("path", { d: MARKS[name], class: look, transform, "vector-effect": "non-scaling-stroke" });
}

function badge(name, look) {
  return drawn("svg", { viewBox: "-8 -8 16 16", class: `mini m-${name}`, "aria-hidden": "true" }, mark(name, 0, 0, 5, look));
}

const text = (x, y, words, attributes = {}) => drawn("text", { x, y, ...attributes }, words);

// A drawing as wide as its place, with its words for those who do not see it.
function canvas(figure, height) {
  const place = figure.querySelector(".drawing"), width = Math.max(280, Math.min(place.clientWidth || 640, 860));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  return { svg, width, height, show: (words) => (svg.setAttribute("aria-label", words), place.replaceChildren(svg)) };
}

// Round numbers between low and high.
function ticks(low, high, count) {
  const rough = (high - low) / count, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * size).find((each) => each >= rough * 0.999), found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

// Axes: `x` and `y` map values to places; ticks are [value, words] pairs.
function axes(svg, box, x, y, across, up, titles) {
  const grid = drawn("g", { class: "grid" });
  for (const [value, words] of up) {
    grid.append(drawn("line", { x1: box.left, x2: box.right, y1: y(value), y2: y(value) }));
    svg.append(text(box.left - 6, y(value) + 4, words, { "text-anchor": "end" }));
  }
  for (const [value, words] of across) svg.append(text(x(value), box.bottom + 16, words, { "text-anchor": "middle" }));
  svg.prepend(grid);
  svg.append(drawn("line", { class: "base", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  svg.append(text((box.left + box.right) / 2, box.bottom + 34, titles.across, { "text-anchor": "middle" }));
  svg.append(text(box.left - 6, box.top - 8, titles.up, { "text-anchor": "start", dx: 6 - box.left + 8 }));
}

// A line through points, interrupted where one has no finite number.
function lineOf(points) {
  let path = "", open = false;
  for (const [x, y] of points) {
    path += Number.isFinite(y) ? `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}` : "";
    open = Number.isFinite(y);
  }
  return path;
}

// Labels at the ends of lines, moved apart where they would overlap.
function ends(svg, labels, x, low, high) {
  let last = Infinity;
  const placed = labels.sort((a, b) => b.y - a.y).map(({ words, y }) => {
    last = Math.min(Math.max(y, low), last - 14);
    return { words, y: last };
  });
  const over = Math.max(0, low - last); // pushed out at the top: all move down
  for (const { words, y } of placed) svg.append(text(x, Math.min(y + over, high) + 4, words, { class: "strongly halo" }));
}

// A table of numbers under a figure.
function fill(table, heads, rows) {
  const head = (words, at) => made("th", { scope: "col", ...(at ? {} : { class: "text" }) }, words);
  const row = ([name, ...values]) => made("tr", {}, made("th", { scope: "row", class: "text" }, name), ...values.map(cell));
  table.tHead.replaceChildren(made("tr", {}, ...heads.map(head)));
  table.tBodies[0].replaceChildren(...rows.map(row));
}

const cell = (value) => made("td", Number.isFinite(value) ? { "data-value": String(value) } : {}, number(value));
