// Every algorithm's loss, as `fa.predict` and `fa.fine_tuning` answer: one case per pair of stages.

const ALGORITHMS = {
  local: ["nothing", "converge"],
  local_ridge: ["nothing", "ridge"],
  fedavg: ["average", "keep"],
  ftfa: ["average", "converge"],
  rtfa: ["average", "ridge"],
  maml: ["meta", "converge"],
  pfedme: ["moreau", "ridge"],
  pfedme_ridge: ["posterior", "ridge"],
};
const MAML_STEP = 0.1;
const TIE = 1e-10; // losses closer than this, relatively, are the same limit
const ONLY_UNCORRELATED = "with finitely many clients there is a formula only for uncorrelated features (identity)";
const ONLY_BEST = "with finitely many clients and correlated features there is a formula only at the best ridge";
const ONLY_LONG = "a ridge pulls the shared model towards zero: the norm must be at least the radius, along every feature";
const ONLY_EVEN = "with finitely many clients there is a formula only for clients that differ evenly (alignment 0)";
const FINE = { search: SEARCH, nodes: 24, most: 768, arc: 18 }; // nodes a panel, and how many at most

// view: {radius, noise, aspect, norm, clients (Infinity), member, ridge (null: best), shift_power, spectrum}.
function problem(view) {
  const here = world(view, view.spectrum, view.shift_power), single = alone(here, view.norm);
  const centre = single.g.map((each, i) => single.r2 * each - here.r2 * here.g[i]);
  const lacking = centre.some((each) => each < -1e-12 * single.r2);
  return { ...view, here, single, centre: lacking ? null : centre.map((each) => Math.max(each, 0)) };
}

function risk(name, asked, precision = FINE) {
  const [server, stage] = ALGORITHMS[name], { here, single, clients, ridge } = asked;
  const limiting = server === "nothing" || clients === Infinity;
  const found = limiting ? limit(stage, server === "nothing" ? single : here, ridge) : finite(server, stage, asked, precision);
  const bias = Math.max(found.bias, 0), variance = Math.max(found.variance, 0);
  return { bias, variance, loss: bias + variance, ridge: found.ridge };
}

// Infinitely many clients: the server stage does not appear, which is the paper's finding.
function limit(stage, here, ridge) {
  if (stage === "keep") return { ...kept(here), ridge: null };
  if (stage === "converge") return { ...interpolated(here), ridge: null };
  const used = ridge ?? bestRidge(here);
  return { ...shrunk(here, used), ridge: used };
}

function finite(server, stage, asked, precision) {
  if (server === "posterior") return twoRidges(asked, precision);
  const { here, clients: m, member, ridge, centre } = asked, own = here.gamma * here.rank, ratio = own / m;
  const used = stage === "ridge" ? (ridge ?? bayesRidge(here)) : null;
  if (Math.abs(ratio - 1) < CRITICAL) {
    const copes = stage === "converge" && own < 1; // with enough samples of its own
    return copes ? { ...interpolated(here), ridge: null } : { bias: Infinity, variance: Infinity, ridge: used };
  }
  if (ratio > 1) { // fewer samples than unknowns: every method shares the interpolant of all samples
    const pooled = pool(here, m, centre);
    return member ? { ...pooledMember(here, pooled), ridge: used } : newcomerRisk(stage, here, ridge, newcomer(here, pooled));
  }
  if (stage === "converge" && own < 1) return { ...interpolated(here), ridge: null }; // forgets where it started
  if (server === "average") {
    const pooled = pool(here, m, null);
    if (member) return averagedMember(stage, here, ridge, pooled, precision.search);
    return newcomerRisk(stage, here, ridge, newcomer(here, pooled));
  }
  return server === "meta" ? { ...uncorrelated("meta", asked, null, precision), ridge: null } : moreau(asked, used, precision);
}

// pFedMe: the best predictor at lambda* for any covariance, any ridge for uncorrelated features.
function moreau(asked, ridge, precision) {
  const { here, clients, member } = asked, bayes = bayesRidge(here);
  if (ridge !== bayes && !(Math.abs(ridge / bayes - 1) <= 1e-12)) {
    if (here.scale === null) throw new NoFormula(ONLY_BEST);
    return { ...uncorrelated("moreau", asked, ridge, precision), ridge };
  }
  if (!here.isotropic) throw new NoFormula(ONLY_EVEN);
  return bestPredictor(here, clients, member);
}

// A ridge on the shared model, too: the posterior mean at its best for any covariance, any client ridge for uncorrelated features.
function twoRidges(asked, precision) {
  const { here, clients: m, member, ridge, centre } = asked, s = here.scale;
  if (centre === null) throw new NoFormula(ONLY_LONG);
  if (ridge === null) {
    if (!here.isotropic) throw new NoFormula(ONLY_EVEN);
    return posterior(here, m, member, centre);
  }
  if (s === null) throw new NoFormula(ONLY_BEST);
  const length = sum(centre), { variance } = shrunk({ ...here, r2: 0, s2: 1 }, ridge);
  const at = (nodes, mu) => {
    const server = subordination((x) => 1 / (x + ridge / s), here.gamma, m, nodes, mu);
    return filtered(server, (x) => ridge / (s * x + ridge), here.r2 * s, here.s2, member, variance, { mu, energy: length * s });
  };
  const loss = (u) => {
    const { bias, variance: noise } = at(2 * precision.nodes, Math.exp(u));
    return bias + noise;
  };
  const expected = ((here.s2 + here.r2 * s) * here.gamma) / (m * Math.max(length, 1e-300));
  const middle = Math.log(Math.min(Math.max(expected, 1e-9 * s), 1e9 * s));
  const mu = Math.min(Math.exp(lowest(loss, middle - 14, middle + 14, 57)), 1e9 * s);
  return { ...settled((nodes) => at(nodes, mu), precision), ridge };
}

function uncorrelated(server, { here, clients, member }, ridge, precision) {
  const s = here.scale;
  if (s === null) throw new NoFormula(ONLY_UNCORRELATED);
  const weights = server === "meta" ? (x) => (1 - MAML_STEP * s * x) ** 2 : (x) => 1 / (x + ridge / s);
  const keep = server === "meta" ? (x) => (x > 0 ? 0 : 1) : (x) => ridge / (s * x + ridge);
  const { variance } = shrunk({ ...here, r2: 0, s2: 1 }, ridge ?? 0);
  const rule = (nodes) => filtered(subordination(weights, here.gamma, clients, nodes), keep, here.r2 * s, here.s2, member, variance);
  return settled(rule, precision);
}

// More nodes until the sums stop moving: MAML's weights vanish at 1/step, where few clients come near a pole.
function settled(rule, { nodes, most }) {
  let last = rule(nodes);
  while ((nodes *= 2) <= most) {
    const now = rule(nodes), moved = Math.abs(now.bias - last.bias) + Math.abs(now.variance - last.variance);
    last = now;
    if (!(moved > 1e-11 * (now.bias + now.variance))) break;
  }
  return last;
}

// With infinitely many clients the best ridge on the shared model vanishes, and pfedme_ridge is pfedme.
const namesFor = ({ clients }) => Object.keys(ALGORITHMS).filter((name) => clients !== Infinity || name !== "pfedme_ridge");

// All algorithms; one without a formula has a `missing` sentence instead of numbers.
function predict(view, names = namesFor(view), precision = FINE) {
  const asked = problem(view), table = {};
  for (const name of names) {
    try {
      table[name] = risk(name, asked, precision);
    } catch (reason) {
      if (!(reason instanceof NoFormula)) throw reason;
      table[name] = { missing: reason.message };
    }
  }
  return table;
}

// The algorithms of lowest loss, the first of equals first.
function winners(table) {
  const rows = Object.entries(table).filter(([, row]) => row.loss !== undefined);
  const least = Math.min(...rows.map(([, row]) => row.loss));
  return rows.filter(([, row]) => row.loss <= least * (1 + TIE)).map(([name]) => name);
}

// The path of fine-tuning by gradient steps of half the largest stable size: {step, longest, at: t -> {bias, variance}}, up to
// `most` steps or convergence.
function* fineTuning(view, precision = FINE, most = LONGEST) {
  const { here, clients: m, member, centre } = problem(view), { low, high } = support(here.gamma, here), step = 1 / high;
  const ratio = (here.gamma * here.rank) / m, rate = step * low;
  const longest = Math.max(1, Math.min(most, rate > 0 ? Math.ceil(40 / rate) : Infinity));
  if (m === Infinity) return { step, longest, at: yield* stopped(here, step, longest, null, precision.arc) };
  if (Math.abs(ratio - 1) < CRITICAL) return { step, longest, at: () => ({ bias: Infinity, variance: Infinity }) };
  if (member && ratio <= 1) {
    if (here.scale === null) throw new NoFormula(ONLY_UNCORRELATED);
    const s = here.scale, server = subordination(() => 1, here.gamma, m, precision.nodes);
    const keep = (t) => (x) => (x === 0 || t === 0 ? 1 : Math.exp(t * Math.log1p(Math.max(-step * s * x, -1))));
    const { variance } = shrunk({ ...here, r2: 0, s2: 1 }, 0);
    return { step, longest, at: (t) => filtered(server, keep(t), here.r2 * s, here.s2, true, t === Infinity ? variance : null) };
  }
  const pooled = pool(here, m, centre);
  if (member) return { step, longest, at: () => pooledMember(here, pooled) }; // it interpolates: its gradient is zero
  const { shift, blur } = newcomer(here, pooled);
  return { step, longest, at: yield* stopped(from(here, shift, here.s2), step, longest, blur, precision.arc) };
}
