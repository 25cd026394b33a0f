// Sliders with a field each, choices and tabs; all of them can be used by keyboard, and say their values in words.

function makeControls(set) {
  for (const control of CONTROLS) {
    const { key, label, letter, about, slider } = control, name = made("label", { for: `field-${key}`, id: `name-${key}` }, label);
    if (letter) name.append(" ", made("i", {}, letter));
    if (about) name.append(made("small", {}, about));
    const { field, wrong } = fieldOf(key), positions = { min: 0, max: slider.count, step: 1 };
    const range = made("input", { type: "range", id: `slider-${key}`, ...positions, "aria-labelledby": `name-${key}` });
    for (const [kind, options] of [["input", { settle: false }], ["change", {}]]) { // while it moves, and when it has moved
      range.addEventListener(kind, () => set({ [key]: slider.at(Number(range.value)) }, key, options));
      field.addEventListener(kind, () => {
        const found = parsed(control, field.value);
        complain(field, wrong, found.wrong);
        if (!found.wrong) set({ [key]: found.value }, key, options);
      });
    }
    $(`controls-${control.group}`).append(made("div", { class: "control", id: `control-${key}` }, name, field, range, wrong));
  }
  makeAtoms(set);
  $("kind").addEventListener("change", (event) => set({ kind: event.target.value }, "kind"));
  $("among").addEventListener("change", (event) => set({ among: event.target.value }, "among"));
  for (const radio of document.getElementsByName("member")) {
    radio.addEventListener("change", () => set({ member: radio.value === "yes" }, "member"));
  }
  for (const form of ["controls", "controls-of-rounds"]) $(form).addEventListener("submit", (event) => event.preventDefault());
}

// A field, and the place for what is wrong with it.
function fieldOf(key) {
  const quiet = { autocomplete: "off", spellcheck: "false", "aria-describedby": `wrong-${key}` };
  return {
    field: made("input", { type: "text", id: `field-${key}`, ...quiet }),
    wrong: made("p", { id: `wrong-${key}`, class: "wrong", role: "alert", hidden: "" }),
  };
}

function complain(field, place, wrong) {
  field.setAttribute("aria-invalid", String(Boolean(wrong)));
  place.textContent = wrong ?? "";
  place.hidden = !wrong;
}

function makeAtoms(set) {
  const { field, wrong } = fieldOf("atoms"), about = made("small", {}, "value@share, separated by commas");
  const label = made("label", { for: "field-atoms", class: "wide-field" }, "Eigenvalues", about);
  field.className = "wide-field";
  field.addEventListener("change", () => {
    const found = parsedAtoms(field.value);
    complain(field, wrong, found.wrong);
    if (!found.wrong) set({ atoms: field.value.replaceAll(" ", "") }, "atoms");
  });
  $("controls-features").prepend(made("div", { class: "control", id: "control-atoms" }, label, field, wrong));
}

// Show a state: the field that is being typed in is left alone.
function showControls(state) {
  for (const control of CONTROLS) {
    const { key, slider, kind } = control, field = $(`field-${key}`), range = $(`slider-${key}`), value = state[key];
    if (document.activeElement !== field) {
      field.value = typed(control, value);
      complain(field, $(`wrong-${key}`), null);
    }
    if (slider.at(Number(range.value)) !== value) range.value = nearest(slider, value);
    range.setAttribute("aria-valuetext", value === control.value ? control.shown : String(value));
    if (kind) $(`control-${key}`).hidden = kind !== state.kind;
  }
  $("control-atoms").hidden = state.kind !== "atoms";
  if (document.activeElement !== $("field-atoms")) $("field-atoms").value = state.atoms;
  $("kind").value = state.kind;
  $("among").value = state.among;
  for (const radio of document.getElementsByName("member")) radio.checked = (radio.value === "yes") === state.member;
  $("slider-shift_power").disabled = $("field-shift_power").disabled = state.kind === "identity";
}

// The position of a slider that is nearest to a value.
function nearest(slider, value) {
  let best = 0, least = Infinity;
  for (let i = 0; i <= slider.count; i++) {
    const at = slider.at(i), known = Number.isFinite(at) && Number.isFinite(value); // "best" and infinity are near nothing
    const away = at === value ? -1 : known ? Math.abs(at - value) : Infinity;
    if (away < least) [best, least] = [i, away];
  }
  return least === Infinity ? slider.count - 1 : best;
}

function makeTabs(choose) {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  for (const [at, tab] of tabs.entries()) {
    tab.addEventListener("click", () => (showTab(tab.id.slice(4)), choose(tab.id.slice(4))));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = tabs[(to + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  }
}

function showTab(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !on;
  }
}
