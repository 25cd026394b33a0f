// The tab "Rounds and privacy": its numbers, words and figure.

function computeRounds() {
  const figure = $("rounds-path");
  $("rounds-command").textContent = roundsCommand(state);
  try {
    const private_ = state.epsilon !== null, now = bestRounds(state), free = private_ ? bestRounds(state, null) : now;
    const alone = limit("ridge", { ...world(state, spectrumOf([1], [1])), r2: state.norm ** 2 }, null), apart = alone.bias + alone.variance;
    const losses = now.path.map((each) => personalLoss(now.start, each)), plain = free.path.map((each) => personalLoss(free.start, each));
    drawRounds(figure, { losses, plain: private_ ? plain : null, apart, shared: now.path.map(({ bias, noise }) => state.radius ** 2 + bias + noise) });
    $("rounds-words").textContent = roundsWords(now, losses.at(-1), plain.at(-1), apart);
    const rows = [null, ...NOISE.epsilons].map((epsilon) => budgetRow(epsilon, free.path.at(-1)));
    fill(figure.querySelector("table"), ["budget", "loss", "radius that costs as much", "clip", "noise multiplier"], rows);
  } catch (reason) {
    if (!(reason instanceof NoFormula)) throw reason;
    $("rounds-words").textContent = `Nothing is predicted: ${reason.message}.`;
    figure.querySelector(".drawing").replaceChildren();
  }
}

// A row of the table: what a budget costs with everything else as it is set.
function budgetRow(epsilon, free) {
  const found = bestRounds(state, epsilon), end = found.path.at(-1);
  const extra = end.bias + end.noise - free.bias - free.noise, radius = Math.sqrt(Math.max(state.radius ** 2 + extra, 0));
  const name = epsilon === null ? "no privacy" : `epsilon ${epsilon}`;
  return [name, personalLoss(found.start, end), epsilon === null ? null : radius, epsilon === null ? null : found.clip, epsilon === null ? null : found.start.z];
}

function roundsWords({ start, clip, path }, loss, plain, apart) {
  const end = path.at(-1), away = number(end.bias + end.noise), D = start.D;
  const told = `After ${state.rounds} rounds with cohorts of ${D} the shared model is ${away} above the shared optimum, and rtfa's loss is ${number(loss)}; alone, clients have ${number(apart)}.`;
  if (state.epsilon === null) return told;
  const cost = loss > plain ? `${percent(loss / plain - 1)} more than without privacy (${number(plain)})` : `no more than without privacy (${number(plain)})`;
  const verdict = loss < 0.95 * apart ? "Sharing pays." : "Sharing costs too much: it gains less than 5 %. More clients would help most.";
  return `${told} Epsilon ${state.epsilon} takes a noise multiplier of ${number(start.z)}, with updates clipped at ${number(clip)}: ${cost}. ${verdict}`;
}

function drawRounds(figure, { losses, plain, apart, shared }) {
  const { svg, width, height, show } = canvas(figure, 320), box = { left: 52, right: width - 104, top: 26, bottom: height - 44 };
  const last = losses.length - 1, across = (t) => box.left + (Math.log1p(t) / Math.log1p(last)) * (box.right - box.left);
  const most = 1.1 * Math.max(...losses.slice(1), apart, Math.min(shared.at(-1), 3 * apart));
  const up = (value) => box.bottom - (Math.min(value, 1.2 * most) / most) * (box.bottom - box.top);
  axes(svg, box, across, up, counted(0, last, width).filter(([t]) => Number.isFinite(t)), ticks(0, most, 5).map((each) => [each, number(each)]), { across: "rounds", up: "loss" });
  const inside = clipped(svg, "rounds-clip", box), labels = [];
  const lines = [["rtfa", "rtfa", losses, "none"], ["fedavg", "fedavg", shared, "none"]];
  if (plain) lines.push(["rtfa", "not private", plain, "2 3"]);
  lines.push(["local_ridge", "alone", losses.map(() => apart), "7 4"]);
  for (const [name, words, values, dash] of lines) {
    inside.append(drawn("path", { d: lineOf(values.map((value, t) => [across(t), up(value)])), class: `line m-${name}`, "stroke-dasharray": dash }));
    labels.push({ words, y: up(values.at(-1)) });
  }
  ends(svg, labels, box.right + 10, box.top, box.bottom);
  show(`Loss over rounds: rtfa ${number(losses[0])} at the start, ${number(losses.at(-1))} at the end; alone ${number(apart)}.`);
}
