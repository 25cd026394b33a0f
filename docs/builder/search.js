// Search without a server: the index is a script beside the pages, read when someone first asks.
"use strict";
(() => {
  const root = document.documentElement.dataset.root;
  const field = document.getElementById("search");
  const list = document.getElementById("found");
  let asked = false;

  function fold(text) {
    return text.toLowerCase().normalize("NFKD");
  }

  function load() {
    if (asked) return;
    asked = true;
    const script = document.createElement("script");
    script.src = root + "search-index.js";
    script.onload = show;
    document.head.append(script);
  }

  // All words must occur; titles and headings count more than text, whole words more than parts.
  function score(row, words) {
    const [, title, heading, text] = row.map(fold);
    let total = 0;
    for (const word of words) {
      const inText = text.indexOf(word);
      const found = (title.includes(word) ? 8 : 0) + (heading.includes(word) ? 12 : 0) + (inText >= 0 ? 1 : 0);
      if (!found) return 0;
      total += found + (heading.split(/\W+/).includes(word) ? 6 : 0);
    }
    return total;
  }

  function snippet(text, words) {
    const at = Math.max(0, fold(text).indexOf(words[0]) - 40);
    return (at ? "… " : "") + text.slice(at, at + 140);
  }

  function show() {
    const words = fold(field.value).split(/\s+/).filter(Boolean);
    list.replaceChildren();
    list.hidden = !words.length || !window.searchIndex;
    if (list.hidden) return;
    const rows = window.searchIndex.map((row) => [score(row, words), row]).filter(([points]) => points);
    rows.sort((a, b) => b[0] - a[0]);
    for (const [, [address, title, heading, text]] of rows.slice(0, 12)) {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = root + address;
      link.textContent = heading && heading !== title ? `${title}: ${heading}` : title;
      const line = document.createElement("span");
      line.textContent = snippet(text, words);
      item.append(link, line);
      list.append(item);
    }
    if (!rows.length) list.append(Object.assign(document.createElement("li"), { textContent: "Nothing found." }));
  }

  field.addEventListener("focus", load);
  field.addEventListener("input", () => { load(); show(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== field) { event.preventDefault(); field.focus(); }
    if (event.key === "Escape") { field.value = ""; show(); field.blur(); }
  });
  // Folded on a phone until it is asked for.
  if (window.matchMedia("(max-width: 56rem)").matches) document.querySelector("nav details")?.removeAttribute("open");
})();
