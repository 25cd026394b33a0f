// The columns of a table, each with what it holds and a choice of its role; names are text, whatever they are.

const TABLES = [".csv", ".tsv", ".txt", ".xlsx", ".parquet"];
const ROLES = { "": "automatic", number: "number", category: "category", shared: "shared only", ignore: "leave out" };
const MOST_ROLES = 200; // columns with a choice; more would be slow, and nobody would read them

function makeColumns() {
  const chosen = { label: $("label-column"), client: $("client-column") }, body = $("roles").tBodies[0];
  let columns = null, rows = [], kind = "unknown";
  for (const select of Object.values(chosen)) {
    select.addEventListener("change", () => {
      select.removeAttribute("aria-invalid");
      hideChosen();
    });
  }

  function display(next) {
    kind = next;
    $("fields").hidden = kind === "unknown";
    $("of-arrays").hidden = kind !== "arrays";
    $("of-table").hidden = kind !== "table";
    for (const each of document.querySelectorAll(".table-only")) each.hidden = kind !== "table";
  }

  function show(found) {
    columns = found.columns;
    for (const [use, select] of Object.entries(chosen)) {
      const options = columns.map(({ name }, at) => [name, at]).filter(([name]) => name !== "");
      select.replaceChildren(made("option", { value: "" }, "choose a column"));
      select.append(...options.map(([name, at]) => made("option", { value: at }, name)));
      select.value = found[use] === null ? "" : String(columns.findIndex(({ name }) => name === found[use]));
      select.removeAttribute("aria-invalid");
    }
    rows = columns.slice(0, MOST_ROLES).map((column, at) => rowOf(column, at, found));
    body.replaceChildren(...rows);
    $("unlisted").hidden = columns.length <= MOST_ROLES;
    $("unlisted").textContent = `The other ${columns.length - MOST_ROLES} columns are automatic.`;
    for (const id of ["task", "scale", "absent"]) $(id).value = "";
    hideChosen();
    display("table");
  }

  function rowOf(column, at, { rows: height, split }) {
    const title = made("span", { id: `column-${at}` }, column.name || "(no name)");
    const name = made("th", { scope: "row", class: "text" }, title);
    if (column.example) name.append(made("small", {}, `such as ${column.example}`));
    if (column.name === split) return made("tr", {}, name, contents(column, height), made("td", { class: "text" }, "says who trains"));
    const role = made("select", { "aria-labelledby": `role-heading column-${at}` });
    role.append(...Object.entries(ROLES).map(([value, words]) => made("option", { value }, words)));
    return made("tr", {}, name, contents(column, height), made("td", { class: "text" }, role));
  }

  function contents({ kind: held, distinct, missing }, height) {
    const different = distinct === height && height > 1 ? "all different" : `${distinct} different`;
    const counted = [distinct ? different : "", missing ? `${missing} missing` : ""].filter(Boolean).join(", ");
    return made("td", { class: "text" }, held, made("small", {}, counted));
  }

  // A column that is the label or the client has no role beside.
  function hideChosen() {
    const taken = Object.values(chosen).map((select) => select.value);
    rows.forEach((row, at) => (row.hidden = taken.includes(String(at))));
  }

  // What is asked for, as the server takes it; null where columns are not known yet.
  function read() {
    if (kind === "unknown") return null;
    if (kind === "arrays") return { label: $("label").value, client: $("client").value, task: $("task").value };
    for (const [use, select] of Object.entries(chosen)) {
      if (select.value !== "") continue;
      select.setAttribute("aria-invalid", "true");
      select.focus();
      return { wrong: `Choose the column of the ${use}s first.` };
    }
    const given = rows.map((row, at) => [columns[at].name, row.hidden ? "" : (row.querySelector("select")?.value ?? "")]);
    const roles = Object.fromEntries(given.filter(([, role]) => role !== ""));
    const named = Object.fromEntries(Object.entries(chosen).map(([use, select]) => [use, columns[select.value].name]));
    return { ...named, task: $("task").value, scale: $("scale").value, missing: $("absent").value, roles: JSON.stringify(roles) };
  }

  return { show, read, showArrays: () => display("arrays"), forget: () => display("unknown") };
}
