// The tab that takes a file: it goes to the server that this page came from, on this machine, and the advice comes back.

const LONGEST_ADDRESS = 60000; // characters of an address that a server takes

function makeData(explore) {
  if (document.body.dataset.served !== "yes") return;
  const columns = makeColumns(), form = $("data"), drop = $("drop"), chosen = $("file"), button = form.querySelector("[type=submit]");
  let dropped = null, estimates = null, sent = 0;

  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind.startsWith("drage") || kind === "dragover");
    });
  }
  drop.addEventListener("drop", (event) => {
    const { files } = event.dataTransfer;
    if (files.length === 1) (chosen.files = files), take(files[0]); // the field shows the name as if it had been chosen
    else refuse("Drop one file at a time; for a folder of files, run fedasym advise FOLDER.");
  });
  chosen.addEventListener("change", () => chosen.files.length && take(chosen.files[0]));
  form.addEventListener("submit", (event) => (event.preventDefault(), ask()));
  $("carry").firstElementChild.addEventListener("click", () => (showTab("theory"), explore(estimates)));

  // Of a table, the columns come first; arrays are advised on at once, by their usual names.
  function take(file) {
    dropped = file;
    drop.querySelector("b").textContent = file.name;
    columns.forget();
    clear();
    if (TABLES.some((ending) => file.name.toLowerCase().endsWith(ending))) list();
    else columns.showArrays(), ask();
  }

  function clear() {
    for (const id of ["refusal", "advice", "carry", "recipe"]) $(id).hidden = true;
    $("progress").textContent = "";
  }

  function refuse(words) {
    $("progress").textContent = "";
    $("refusal").textContent = words;
    $("refusal").hidden = false;
  }

  async function list() {
    const file = dropped, found = await send("/columns", {}, `Reading the columns of ${file.name} …`);
    if (!found || file !== dropped) return;
    if (!found.columns) return columns.showArrays(), ask(); // lists of numbers: arrays, as in the other formats
    columns.show(found);
    const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
    const size = `${counted(found.rows, "row")} and ${counted(found.columns.length, "column")}`;
    $("progress").textContent = `${file.name} has ${size}. Check what they are, then press Advise.`;
  }

  async function ask() {
    if (dropped === null) return refuse("There is no file yet: drop one, or choose one.");
    const asked = columns.read();
    if (asked === null) return list(); // they could not be read before
    clear();
    if (asked.wrong) return refuse(asked.wrong);
    const found = await send("/advise", asked, `Reading ${dropped.name} and working out the advice …`);
    if (found) present(found);
  }

  // What the server answers to the file; null where it refuses, which is told.
  async function send(place, asked, words) {
    const megabytes = (size) => number(size / 2 ** 20), most = Number(document.body.dataset.most);
    if (dropped.size > most) {
      const sizes = `has ${megabytes(dropped.size)} MB, and at most ${megabytes(most)} MB are taken here`;
      return refuse(`${dropped.name} ${sizes}: run fedasym advise FILE.`), null;
    }
    const said = String(new URLSearchParams({ name: dropped.name, ...asked })), headers = { "Content-Type": "application/octet-stream" };
    if (said.length > LONGEST_ADDRESS) {
      return refuse("The names of columns are too long to be sent: shorten them, or run fedasym advise FILE."), null;
    }
    const file = dropped, turn = ++sent;
    clear();
    button.disabled = true;
    $("progress").textContent = words;
    let found = { error: "The server does not answer: is fedasym explore still running? Start it again, and reload this page." };
    try {
      found = await (await fetch(`${place}?${said}`, { method: "POST", headers, body: file })).json();
    } catch {
      // told below
    }
    if (turn === sent) button.disabled = false;
    if (file !== dropped) return null; // another file has come meanwhile, and has its own answer
    if (found.error) refuse(found.error);
    return found.error ? null : found;
  }

  function present(found) {
    $("progress").textContent = found.words;
    const usable = ([key, value]) => !Object.hasOwn(CONTROL, key) || !parsed(CONTROL[key], String(value)).wrong;
    estimates = found.estimates && Object.fromEntries(Object.entries(found.estimates).filter(usable));
    $("carry").hidden = !estimates;
    $("recipe").hidden = !found.recipe;
    const [label, ...rest] = (found.recipe ?? "").split("\n"), [first, second] = $("recipe").querySelectorAll("p");
    [first.textContent, second.textContent] = [`${label[0]?.toUpperCase() ?? ""}${label.slice(1)}.`, rest.join(" ")];
    const frame = $("advice");
    frame.hidden = false;
    frame.onload = () => (frame.height = frame.contentDocument.documentElement.scrollHeight + 24);
    frame.src = found.page;
  }
}
