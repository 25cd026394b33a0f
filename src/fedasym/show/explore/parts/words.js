// What the numbers mean, in a few sentences: what wins, why, and what would change it.

const UNBOUNDED =
  "All samples together just match the unknowns: no shared model has a bounded error here. Change the aspect or the clients a little.";
const INTERPOLATED =
  "All samples together are fewer than the unknowns, so the shared model interpolates every member's samples and nothing is left " +
  "to fine-tune.";
const CROWDED_SHRUNK =
  "All samples together are fewer than the unknowns, so without a ridge the shared model interpolates every member's samples; " +
  "a ridge on it, beside the one on clients' differences, lowers the loss.";
const SHRUNK = "So few clients leave the shared model uncertain: a ridge on it, beside the one on clients' differences, lowers the loss.";

function verdict(state, table) {
  const known = Object.values(table).filter((row) => row.loss !== undefined), first = winners(table), best = table[first[0]];
  if (!Number.isFinite(best.loss)) return UNBOUNDED;
  const who = first.length === known.length ? "of all algorithms alike" : `that of ${listedNames(first)}`;
  const gains = [["fedavg", "which does not personalise"], ["local_ridge", "which shares nothing"]]
    .filter(([name]) => table[name].loss > best.loss * (1 + TIE))
    .map(([name, what]) => `${below(best.loss, table[name].loss)} ${name}, ${what}`);
  const won = `The lowest loss, ${number(best.loss)}, is ${who}${gains.length ? `: ${gains.join(", and ")}` : ""}.`;
  return [won, reason(state, table, first[0]), change(state, table)].filter(Boolean).join(" ");
}

const below = (loss, other) => (other === Infinity ? "bounded, unlike" : `${percent(1 - loss / other)} below`);

// The same in a few words, for small screens.
function brief(table) {
  const first = winners(table);
  return `Lowest: ${listedNames(first.slice(0, 3))}, ${number(table[first[0]].loss)}`;
}

function crowdedNow(state) {
  return state.clients !== Infinity && (state.aspect * spectrumFor(state).rank) / state.clients > 1 + CRITICAL;
}

function reason(state, table, name) {
  const best = table[name], { fedavg, ftfa } = table, [server, stage] = ALGORITHMS[name];
  if (server === "posterior") return crowdedNow(state) && state.member ? CROWDED_SHRUNK : SHRUNK;
  if (crowdedNow(state) && state.member) return INTERPOLATED;
  if (state.radius === 0 && server !== "nothing") return "Clients do not differ, so the shared model is everyone's.";
  if (server === "nothing") {
    if (state.clients === 1) return "One client has nobody to share with.";
    if (state.clients !== Infinity) {
      return `${state.clients} clients are too few, or too different: the shared model alone has loss ${number(fedavg.loss)}.`;
    }
    const far = `(length ${number(state.norm)}) is no further from zero than from the shared one (${number(state.radius)})`;
    return state.norm <= state.radius ? `A client's optimum ${far}: there is nothing to share.` : "";
  }
  if (stage === "keep" || best.ridge === Infinity) {
    const bias = `the bias from ${number(fedavg.bias)} to ${number(ftfa.bias)}`;
    const variance = `the variance from ${number(fedavg.variance)} to ${number(ftfa.variance)}`;
    return `A client's own samples are too noisy to learn from: fine-tuning would change ${bias} and ${variance}.`;
  }
  const bias = `the bias from ${number(fedavg.bias)} to ${number(best.bias)}`;
  const moved = `A client's own samples bring ${bias} and the variance from ${number(fedavg.variance)} to ${number(best.variance)}`;
  if (stage === "converge") return `${moved}.`;
  if (best.ridge < 0) {
    const strong = "clients differ along strong features, so even interpolation shrinks too much";
    return `${moved}; ${strong}, and the best ridge is negative (${number(best.ridge)}).`;
  }
  return `${moved}; the ridge ${number(best.ridge)} ${state.ridge === null ? "balances the two" : "is given"}.`;
}

// Both losses are bias + noise² times something, so the noise at which they cross is explicit.
function change(state, table) {
  if (crowdedNow(state) || !Number.isFinite(table.fedavg.loss)) return "";
  const unit = predict({ ...viewOf(state), noise: 1 }, ["fedavg", "ftfa"]), edge = noiseThreshold(unit.ftfa, unit.fedavg);
  const side = state.noise < edge ? "Above" : "Below", then = state.noise < edge ? "would no longer beat" : "would beat";
  let text = `${side} noise ${number(edge)} plain fine-tuning (ftfa) ${then} fedavg; the noise is ${number(state.noise)}`;
  if (edge === 0) text = "Plain fine-tuning (ftfa) never beats fedavg here, at any noise";
  if (edge === Infinity) text = "Plain fine-tuning (ftfa) beats fedavg at any noise";
  const sharing = table.rtfa.loss, single = table.local_ridge.loss;
  if (state.clients === Infinity && state.shift_power === 0) {
    const until_ = sharing <= single ? "sharing pays until the radius reaches" : "sharing would pay if the radius were below";
    return `${text}; ${until_} the norm, ${number(state.norm)}.`;
  }
  const pays = sharing < single * (1 - TIE) ? `; sharing pays: rtfa ${number(sharing)} against local_ridge ${number(single)}` : "";
  return `${text}${pays}.`;
}

function diagramWords(shares, winner) {
  const who = winner.length === 1 ? `${winner[0]} wins` : `${listedNames(winner)} are equal`;
  return `At your point (ring) ${who}. Over this range the lowest loss is that of ${shares}. Click to move there.`;
}

function pathWords({ points, best, chosen, step, instead }) {
  const losses = points.map((each) => each.loss), [low, high] = [Math.min(...losses), Math.max(...losses)];
  const size = `A step has size ${number(step)}, half of the largest stable one.`;
  if (low === high || high - low < 1e-9 * high) {
    return [`Fine-tuning changes nothing: the loss is ${number(low)} at every step.`, instead].filter(Boolean).join(" ");
  }
  const start = number(losses[0]), end = number(losses.at(-1)), plural = best.t === 1 ? "" : "s";
  let text = `Stop after ${best.t} step${plural} (star): loss ${number(best.loss)}, against ${start} without and ${end} at convergence.`;
  if (best.t === Infinity) text = `Train to convergence (star): that is best, ${end} against ${start} at the start.`;
  if (best.t === 0) text = `Do not fine-tune (star): that is best, ${start} against ${end} at convergence.`;
  const where = chosen.t === Infinity ? "at convergence" : `after ${chosen.t}`;
  if (chosen.t !== best.t) text += ` Yours (ring), ${where}: ${number(chosen.loss)}.`;
  return [text, size, instead].filter(Boolean).join(" ");
}

function federationWords(state, { columns, names }) {
  const shared = names.filter((name) => ALGORITHMS[name][0] !== "nothing"), single = names.filter((name) => !shared.includes(name));
  const least = (table, some) => Math.min(...some.map((name) => table[name].loss ?? Infinity));
  const since = (holds) => columns[columns.findLastIndex(({ table }) => !holds(table)) + 1]?.m;
  const pays = since((table) => least(table, shared) < least(table, single)), limit_ = least(columns.at(-1).table, shared);
  const near = since((table) => least(table, shared) <= 1.1 * limit_);
  const parts = [`For a ${state.member ? "member" : "newcomer"}.`];
  if (pays === undefined) parts.push("However many clients share, learning alone is as good.");
  else if (pays === Infinity) parts.push("Only very many clients make sharing pay.");
  else parts.push(pays === 1 ? "Sharing always pays." : `Sharing pays with about ${pays} clients or more.`);
  if (Number.isFinite(near)) parts.push(`About ${near} come within 10 % of what infinitely many reach.`);
  const left = names.filter((name) => columns.some(({ table }) => table[name].missing));
  if (left.length) parts.push(`There is no formula for ${listedNames(left)} with some of these numbers of clients.`);
  return parts.join(" ");
}
