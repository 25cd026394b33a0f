// The tab that takes a file: it goes to the server that this page came from, on this machine, and the advice comes back.

function makeData(explore) {
  if (document.body.dataset.served !== "yes") return;
  const form = $("data"), drop = $("drop"), chosen = $("file"), button = form.querySelector("[type=submit]");
  let dropped = null, estimates = null;

  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind.startsWith("drage") || kind === "dragover");
    });
  }
  drop.addEventListener("drop", (event) => {
    if (event.dataTransfer.files.length === 1) take(event.dataTransfer.files[0]);
    else refuse("Drop one file at a time; for a folder of files, run fedasym advise FOLDER.");
  });
  chosen.addEventListener("change", () => chosen.files.length && take(chosen.files[0]));
  form.addEventListener("submit", (event) => (event.preventDefault(), ask()));
  $("carry").firstElementChild.addEventListener("click", () => (showTab("theory"), explore(estimates)));

  function take(file) {
    dropped = file;
    drop.querySelector("b").textContent = file.name;
    ask();
  }

  function refuse(words) {
    $("progress").textContent = "";
    $("refusal").textContent = words;
    $("refusal").hidden = false;
  }

  async function ask() {
    if (dropped === null) return refuse("There is no file yet: drop one, or choose one.");
    const megabytes = (size) => number(size / 2 ** 20), most = Number(document.body.dataset.most);
    if (dropped.size > most) {
      const sizes = `has ${megabytes(dropped.size)} MB, and at most ${megabytes(most)} MB are taken here`;
      return refuse(`${dropped.name} ${sizes}: run fedasym advise FILE.`);
    }
    for (const id of ["refusal", "advice", "carry"]) $(id).hidden = true;
    button.disabled = true;
    $("progress").textContent = `Reading ${dropped.name} and thinking about it …`;
    const columns = { label: $("label").value, client: $("client").value, task: $("task").value };
    const said = new URLSearchParams({ name: dropped.name, ...columns }), headers = { "Content-Type": "application/octet-stream" };
    try {
      const answer = await fetch(`/advise?${said}`, { method: "POST", headers, body: dropped });
      const found = await answer.json();
      if (found.error) refuse(found.error);
      else present(found);
    } catch {
      refuse("The server does not answer: is fedasym explore still running? Start it again, and reload this page.");
    }
    button.disabled = false;
  }

  function present(found) {
    $("progress").textContent = found.words;
    const usable = ([key, value]) => !Object.hasOwn(CONTROL, key) || !parsed(CONTROL[key], String(value)).wrong;
    estimates = found.estimates && Object.fromEntries(Object.entries(found.estimates).filter(usable));
    $("carry").hidden = !estimates;
    const frame = $("advice");
    frame.hidden = false;
    frame.onload = () => (frame.height = frame.contentDocument.documentElement.scrollHeight + 24);
    frame.src = found.page;
  }
}
