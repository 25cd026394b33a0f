// Reading values off curves, sorting tables. The page is whole without it.
"use strict";

function chart(figure) {
  const output = figure.querySelector("output");
  if (!output) return;

  function read(svg, event) {
    let found = null, least = Infinity;
    for (const point of svg.querySelectorAll(".curve use")) {
      const box = point.getBoundingClientRect();
      const away = Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
      if (away < least) [found, least] = [point, away];
    }
    for (const point of svg.querySelectorAll(".read")) point.classList.remove("read");
    if (!found) return;
    found.classList.add("read");
    output.textContent = found.closest(".curve").dataset.name + ", " + found.textContent;
  }

  for (const svg of figure.querySelectorAll("svg")) {
    svg.addEventListener("pointermove", (event) => read(svg, event));
    svg.addEventListener("pointerdown", (event) => read(svg, event));
  }
}

function sortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];

  function value(row, column) {
    const cell = row.cells[column];
    if (heads[column].classList.contains("text")) return cell.textContent;
    const number = Number(cell.dataset.value ?? Number.parseFloat(cell.textContent.replaceAll(",", "").replace("−", "-")));
    return Number.isNaN(number) ? null : number;
  }

  function sort(column) {
    const head = heads[column];
    const numbers = !head.classList.contains("text");
    const before = head.getAttribute("aria-sort");
    // Numbers begin with the largest, words with A.
    const up = before ? before === "descending" : !numbers;
    for (const each of heads) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].map((row) => [value(row, column), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // without a number: last, either way
      const order = numbers ? a - b : a.localeCompare(b, "en", { numeric: true });
      return up ? order : -order;
    });
    body.append(...rows.map(([, row]) => row));
  }

  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sort(column)));
}

document.documentElement.classList.add("live");
document.querySelectorAll("figure.chart").forEach(chart);
document.querySelectorAll("table").forEach(sortable);

// On paper nobody can open what is folded.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details.print:not([open])")];
  for (const each of opened) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of opened) each.open = false;
});
