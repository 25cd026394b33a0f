// Reading values off curves, hiding curves, sorting tables. The page is whole without it.
"use strict";

function chart(figure) {
  const data = JSON.parse(figure.querySelector("script.data").textContent);
  const slider = figure.querySelector("input[type=range]");
  const output = figure.querySelector("output");
  const buttons = [...figure.querySelectorAll(".legend button")];
  const hidden = new Set();

  function read(at) {
    slider.value = at;
    output.textContent = "Round " + data.rounds[at];
    const heard = [];
    buttons.forEach((button, i) => {
      const { name, ours, paper } = data.series[i];
      button.querySelector(".ours").textContent = ours ? ours[at] : "";
      button.querySelector(".paper").textContent = paper ? "paper " + paper[at] : "";
      if (!hidden.has(button.dataset.series)) {
        heard.push([name, ours && ours[at], paper && "paper " + paper[at]].filter(Boolean).join(" "));
      }
    });
    slider.setAttribute("aria-valuetext", "round " + data.rounds[at] + ": " + heard.join(", "));
    for (const svg of figure.querySelectorAll(".plot svg")) {
      const rule = svg.querySelector(".rule");
      const place = data.places[svg.classList[0]][at];
      rule.setAttribute("x1", place);
      rule.setAttribute("x2", place);
      rule.setAttribute("visibility", "visible");
    }
  }

  function nearest(svg, event) {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
    const away = data.places[svg.classList[0]].map((place) => Math.abs(place - x));
    return away.indexOf(Math.min(...away));
  }

  slider.addEventListener("input", () => read(Number(slider.value)));
  slider.addEventListener("focus", () => read(Number(slider.value)));
  for (const svg of figure.querySelectorAll(".plot svg")) {
    svg.addEventListener("pointermove", (event) => read(nearest(svg, event)));
    svg.addEventListener("pointerdown", (event) => read(nearest(svg, event)));
  }
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const key = button.dataset.series;
      const show = hidden.delete(key);
      if (!show) hidden.add(key);
      button.setAttribute("aria-pressed", String(show));
      for (const group of figure.querySelectorAll(".series")) {
        if (group.dataset.series === key) group.classList.toggle("off", !show);
      }
    });
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
