// The shared model over communication rounds (docs/learn/9), for uncorrelated features: local steps, cohorts, clipping and noise.
// The recursion (R5), (R6) and what few clients change; every number is checked against the Python package.

const SEMICIRCLE = 6; // nodes of the law of the clients' mean move
const CLIPS = Array.from({ length: 41 }, (_, i) => 0.02 * 100 ** (i / 40)); // of an update's first length
const TIGHTEST = 1e-9; // of that length: with so tight a clip nothing is learned
const ROUND_NODES = 96;

// Logarithms of the least noise multiplier, interpolated between those of the accountant; NaN beyond the table.
function noiseFor(epsilon, rounds, share) {
  const place = (list, value) => {
    if (value > list.at(-1) * (1 + 1e-9) || value < list[0] * (1 - 1e-9)) return [0, NaN];
    const at = Math.min(Math.max(list.findIndex((each) => each >= value) - 1, 0), list.length - 2);
    return [at, Math.log(value / list[at]) / Math.log(list[at + 1] / list[at])];
  };
  const [i, a] = place(NOISE.shares, share), [j, b] = place(NOISE.rounds, rounds), [k, c] = place(NOISE.epsilons, epsilon);
  let total = 0;
  for (const [x, u] of [[0, 1 - a], [1, a]]) {
    for (const [y, v] of [[0, 1 - b], [1, b]]) {
      for (const [z, w] of [[0, 1 - c], [1, c]]) total += u * v * w * Math.log(NOISE.multipliers[i + x][j + y][k + z]);
    }
  }
  return Math.exp(total);
}

// p = E P, T: its scatter, nu: the label noise that a move fits (R2) to (R4); f(x) = 1 - (1 - eta x)^K.
function momentsOfSteps(gamma, steps, size) {
  const { x, w } = marchenkoPastur(gamma, ROUND_NODES), f = (each) => -Math.expm1(steps * Math.log1p(-size * each));
  const signed = (each) => (size * each < 1 ? f(each) : 1 - (1 - size * each) ** steps);
  const mean = (value) => x.reduce((total, each, i) => total + w[i] * value(each), 0);
  const p = mean(signed), square = mean((each) => signed(each) ** 2);
  return { p, T: square - p * p, nu: gamma * mean((each) => (each > 0 ? signed(each) ** 2 / each : 0)), f: signed };
}

// Everything that the rounds of a state begin with; throws where local steps diverge, or clients are too few.
function roundsOf({ radius, noise, aspect, norm, local_steps, server_step, cohort, enrolled, dimension }, epsilon, rounds) {
  const r2 = radius ** 2, s2 = noise ** 2, m = enrolled, D = Math.min(cohort, m), most = 2 / (1 + Math.sqrt(aspect)) ** 2;
  if (server_step >= most) throw new NoFormula(`local steps of ${number(server_step)} diverge: take one below ${number(most)}`);
  if (norm < radius) throw new NoFormula("the norm is shorter than the radius: no shared optimum has such clients");
  if (m <= aspect) throw new NoFormula("all clients together have fewer samples than unknowns: take more clients");
  const z = epsilon === null ? 0 : noiseFor(epsilon, rounds, D / m);
  if (Number.isNaN(z)) throw new NoFormula("the page knows the noise of cohorts of at least a thousandth of the clients: take a larger one");
  const { p, T, nu, f } = momentsOfSteps(aspect, local_steps, server_step);
  const angles = Array.from({ length: SEMICIRCLE }, (_, i) => ((i + 1) * Math.PI) / (SEMICIRCLE + 1));
  const reach = Math.min(2 * Math.sqrt(Math.max(T, 0) / m), 0.9 * p);
  const slope = (x) => (x > 0 ? f(x) / x : local_steps * server_step);
  const optimum = filtered(subordination(slope, aspect, m, ROUND_NODES), () => 1, r2, s2, false);
  return {
    p, T, own: { bias: (p * p + T) * r2, noise: s2 * nu }, D, m, dimension, rounds, r2, s2, gamma: aspect,
    first: norm ** 2 - r2, z, poisson: epsilon !== null,
    missed: { bias: optimum.bias - r2, noise: optimum.variance },
    x: angles.map((angle) => p + reach * Math.cos(angle)),
    w: angles.map((angle) => (2 / (SEMICIRCLE + 1)) * Math.sin(angle) ** 2),
  };
}

// The shared model's error after every round, from displacements and start (bias) and from noise, with updates clipped at `clip`;
// after the last one alone where nothing else is asked for.
function followRounds(start, clip, all = true) {
  const { p, T, own, D, m, z, x, w, missed, rounds, poisson, dimension } = start, J = x.length, found = [];
  const share = poisson ? 1 - D / m : m > 1 ? 1 - (D - 1) / (m - 1) : 0, added = z > 0 ? dimension * ((z * clip) / D) ** 2 : 0;
  const bias = new Float64Array(J).fill(start.first), noise = new Float64Array(J), left = new Float64Array(J).fill(1);
  let whole = 0;
  for (let j = 0; j < J; j++) whole += w[j] / x[j] ** 2;
  for (let t = 0; t <= rounds; t++) {
    let shifted = 0, noisy = 0, reached = 0;
    for (let j = 0; j < J; j++) {
      shifted += w[j] * bias[j];
      noisy += w[j] * noise[j];
      reached += (w[j] * ((1 - left[j]) / x[j]) ** 2) / whole;
    }
    const length = Math.sqrt((p * p + T) * (shifted + noisy) + own.bias + own.noise), a = length > clip ? clip / length : 1;
    if (all || t === rounds) found.push({ t, length, bias: shifted + reached * missed.bias, noise: noisy + reached * missed.noise });
    const fresh = (a * a * share) / D, scatter = fresh * (T + (poisson ? p * p : 0));
    for (let j = 0; j < J; j++) {
      const kept = (1 - a * x[j]) ** 2;
      bias[j] = kept * bias[j] + scatter * shifted + fresh * own.bias;
      noise[j] = kept * noise[j] + scatter * noisy + fresh * own.noise + added;
      left[j] *= 1 - a * x[j];
    }
  }
  return found;
}

// The loss of a personal model that starts from a shared one with that error: the limit with more displacement, at its best ridge.
function personalLoss({ r2, s2, gamma }, { bias, noise }) {
  const here = { ...world({ radius: 1, noise: Math.sqrt(s2), aspect: gamma }, spectrumOf([1], [1])), r2: r2 + bias + noise };
  const { bias: own, variance } = limit("ridge", here, null);
  return own + variance;
}

// The path with the clip that ends lowest; without privacy there is none.
function bestRounds(state, epsilon = state.epsilon, rounds = state.rounds) {
  const start = roundsOf(state, epsilon, rounds);
  if (epsilon === null) return { start, clip: Infinity, path: followRounds(start, Infinity) };
  const first = followRounds({ ...start, rounds: 0 }, Infinity)[0].length;
  let best = { loss: Infinity, clip: NaN }, shares = CLIPS;
  while (shares[0] > TIGHTEST) {
    for (const share of shares) {
      const loss = personalLoss(start, followRounds(start, share * first, false)[0]);
      if (loss < best.loss) best = { clip: share * first, loss };
    }
    if (best.clip !== shares[0] * first) break; // else the least of them: look below
    shares = shares.map((share) => (share * CLIPS[0]) / CLIPS[40]);
  }
  return { start, ...best, path: followRounds(start, best.clip) };
}

function roundsCommand(state) {
  const said = ["radius", "noise", "aspect", "norm", "rounds", "local_steps", "server_step", "cohort", "dimension"];
  const words = said.map((key) => `--${key.replace("_", "-")} ${state[key]}`);
  const private_ = state.epsilon === null ? "" : ` --epsilon ${state.epsilon}`;
  return `fedasym rounds rtfa ${words.join(" ")} --clients ${state.enrolled}${private_}`;
}
