"use strict";
// The limits of docs/learn/2 to 4 for infinitely many clients, in the letters of docs/notation.md. Every number is checked
// against the Python package (tests/explore/test_theory.py).
//
// A spectrum is {s, h, rank, scale}: eigenvalues s and shares h of the directions that samples can see; rank: the sum of h;
// scale: the eigenvalue if all are the same. A world adds r2, s2, gamma and g, the displacement's energy per atom; `total` is
// the sum of g over all directions, seen or not.

const CLOSE = 4 * Number.EPSILON;

const sum = (values) => values.reduce((total, value) => total + value, 0);
const dot = (a, b) => a.reduce((total, value, k) => total + value * b[k], 0);

function spectrumOf(values, weights) {
  const seen = values.map((value, k) => value > 0 && weights[k] > 0);
  const all = sum(weights);
  const h = weights.filter((_, k) => seen[k]).map((weight) => weight / all);
  const rank = Math.abs(sum(h) - 1) < 1e-15 * values.length ? 1 : sum(h);
  return { s: values.filter((_, k) => seen[k]), h, rank, scale: values.every((value) => value === values[0]) ? values[0] : null };
}

function ar1(correlation, points = null) {
  const enough = correlation === 0 ? 1 : Math.min(Math.max(Math.ceil(-37 / Math.log(Math.abs(correlation))), 16), 4096);
  const count = points === null ? enough : Math.min(points, enough);
  const at = (k) => (1 - correlation ** 2) / (1 - 2 * correlation * Math.cos(((k + 0.5) * Math.PI) / count) + correlation ** 2);
  return spectrumOf(Array.from({ length: count }, (_, k) => at(k)), Array(count).fill(1 / count));
}

function powerLaw(exponent, points = 128) {
  const { x, w } = gauss(points);
  const raw = x.map((node) => ((node + 1) / 2 + 0.05) ** -exponent);
  const mean = dot(raw, w) / 2;
  return spectrumOf(raw.map((value) => value / mean), w.map((weight) => weight / 2));
}

// Nodes and weights of Gauss and Legendre on [-1, 1], by Newton from Chebyshev's guess.
const rules = new Map();
function gauss(n) {
  if (rules.has(n)) return rules.get(n);
  const x = Array(n), w = Array(n);
  for (let i = 0; i < n; i++) {
    let t = -Math.cos((Math.PI * (i + 0.75)) / (n + 0.5)), slope = 0;
    for (let round = 0; round < 100; round++) {
      let before = 1, value = t;
      for (let j = 2; j <= n; j++) [before, value] = [value, ((2 * j - 1) * t * value - (j - 1) * before) / j];
      slope = n === 1 ? 1 : (n * (t * value - before)) / (t * t - 1);
      const step = value / slope;
      t -= step;
      if (Math.abs(step) < 1e-16) break;
    }
    x[i] = t;
    w[i] = 2 / ((1 - t * t) * slope * slope);
  }
  rules.set(n, { x, w });
  return rules.get(n);
}

function world(numbers, spectrum, power = 0) {
  const { s, h } = spectrum, top = Math.max(...s);
  const raised = s.map((value, k) => h[k] * (value / top) ** power);
  const total = sum(raised);
  return {
    ...spectrum,
    r2: numbers.radius ** 2, s2: numbers.noise ** 2, gamma: numbers.aspect,
    g: power === 0 ? h : raised.map((value) => value / total),
    total: 1, isotropic: power === 0 || spectrum.scale !== null,
  };
}

// The same client seen by a method that shares nothing: the length of its optimum takes the place of its displacement.
const alone = (here, norm) => ({ ...here, r2: norm ** 2, g: here.h, isotropic: true });

// df1 = sum h s/(s+k), df2 = sum h s²/(s+k)², mixed = df1 - df2, rest = rank - df1, each without cancellation.
function sums(k, { s, h }) {
  let df1 = 0, df2 = 0, mixed = 0, rest = 0;
  for (let i = 0; i < s.length; i++) {
    const near = s[i] / (s[i] + k), far = k / (s[i] + k);
    df1 += h[i] * near;
    df2 += h[i] * near * near;
    mixed += h[i] * near * far;
    rest += h[i] * far;
  }
  return { df1, df2, mixed, rest };
}

const slack = (at, gamma, rank) => (at.rest < at.df1 ? 1 - gamma * rank + gamma * at.rest : 1 - gamma * at.df1);

// kappa solves ridge = kappa (1 - gamma df1(kappa)), equation (1): Newton from above, which is monotone.
function kappa(ridge, gamma, spectrum) {
  const { s, h, rank } = spectrum;
  if (ridge === Infinity) return Infinity;
  if (s.every((value) => value === s[0])) return kappaOfOneAtom(ridge, gamma * rank, s[0]);
  if (ridge === 0 && gamma * rank <= 1) return 0;
  let k = ridge < 0 ? kappa(0, gamma, spectrum) : kappaOfOneAtom(ridge, gamma * rank, dot(s, h) / rank);
  for (let round = 0; round < 500; round++) {
    const at = sums(k, spectrum);
    const next = (ridge + gamma * k * at.mixed) / (slack(at, gamma, rank) + gamma * at.mixed);
    const done = Math.abs(next - k) <= CLOSE * Math.abs(k) || (round > 0 && next > k);
    k = next;
    if (done) break;
  }
  return k;
}

function kappaOfOneAtom(ridge, gamma, s) {
  const b = (gamma - 1) * s + ridge, root = Math.sqrt(b * b + 4 * ridge * s), up = root + Math.abs(b);
  return b >= 0 ? up / 2 : up > 0 ? (2 * ridge * s) / up : 0;
}

// kappa' = 1/(1 - gamma df2), equation (2), as 1/(ridge/kappa + gamma mixed).
function slope(at, k, ridge, gamma, rank) {
  const inverse = (k === 0 ? 1 - gamma * rank : ridge / k) + gamma * at.mixed;
  return inverse <= 0 ? Infinity : 1 / inverse;
}

// The shared model itself: B = r² sum g s, V = 0.
const kept = (here) => ({ bias: here.r2 * dot(here.g, here.s), variance: 0 });

// Ridge towards the shared model, equation (3): B = r² kappa' kappa² sum g s/(s+kappa)², V = sigma² gamma df2 kappa'.
function shrunk(here, ridge) {
  const k = kappa(ridge, here.gamma, here);
  if (k === Infinity) return kept(here);
  const at = sums(k, here), growth = slope(at, k, ridge, here.gamma, here.rank);
  const drag = here.g === here.h ? at.mixed : sum(here.s.map((s, i) => (here.g[i] * s * k) / (s + k) ** 2));
  return {
    bias: k === 0 ? 0 : here.r2 * growth * k * drag,
    variance: here.s2 === 0 ? 0 : here.s2 * here.gamma * at.df2 * growth,
  };
}

// Fine-tuned to convergence: `shrunk` at ridge 0.
const interpolated = (here) => shrunk(here, 0);

function bayesRidge({ r2, s2, gamma, total }) {
  return r2 * total === 0 ? Infinity : (s2 * gamma) / (r2 * total);
}

// The best ridge: sigma² gamma / r² without a preferred direction, else a search over kappa, where the loss is explicit.
function bestRidge(here) {
  if (here.isotropic || here.scale !== null) return bayesRidge(here);
  if (here.s2 === 0 && here.gamma * here.rank <= 1) return 0; // least squares without noise: exact
  const { s, h, g, r2, s2, gamma } = here;
  const far = (gamma * (s2 + kept(here).bias) * dot(h, s.map((each) => each ** 2))) / (r2 * dot(g, s.map((each) => each ** 2)));
  if (!Number.isFinite(far)) return Infinity;

  function loss(k) {
    const { df2 } = sums(k, here), room = 1 - gamma * df2;
    const drag = sum(s.map((each, i) => (g[i] * each) / (each + k) ** 2));
    return room > 0 ? (r2 * k * k * drag + s2 * gamma * df2) / room : Infinity;
  }
  const least = Math.min(...s), floor = edges(gamma, here).minus;
  const k = lowest((u) => loss(Math.exp(u) - least), Math.log(floor + least), Math.log(100 * (Math.max(...s) + far)), 120);
  return (Math.exp(k) - least) * slack(sums(Math.exp(k) - least, here), gamma, here.rank);
}

// kappa where gamma df2 = 1, right of -min(s) and left of -max(s): the two ends of the sample covariance's spectrum.
function edges(gamma, spectrum) {
  const low = Math.min(...spectrum.s), high = Math.max(...spectrum.s);
  const minus = -low + distance(spectrum.s.map((s) => s - low), gamma, spectrum);
  return { minus, plus: -high - distance(spectrum.s.map((s) => high - s), gamma, spectrum) };
}

// delta > 0 with gamma sum h s²/(gap + delta)² = 1, by Newton on the nearly linear (sum)^(-1/2), kept in a bracket.
function distance(gap, gamma, { s, h, rank }) {
  let low = 0;
  for (let i = 0; i < s.length; i++) if (gap[i] === 0) low += h[i];
  low = s[gap.indexOf(0)] * Math.sqrt(gamma * low);
  let high = Math.max(...s) * Math.sqrt(gamma * rank), delta = low;
  for (let round = 0; round < 200; round++) {
    let total = 0, steep = 0;
    for (let i = 0; i < s.length; i++) {
      const reach = gap[i] + delta, term = gamma * h[i] * (s[i] / reach) ** 2;
      total += term;
      steep += term / reach;
    }
    if (total >= 1) low = delta;
    if (total <= 1) high = delta;
    const step = delta + ((Math.sqrt(total) - 1) * total) / steep;
    const next = low <= step && step <= high ? step : (low + high) / 2;
    const done = Math.abs(next - delta) <= CLOSE * delta;
    delta = next;
    if (done) break;
  }
  return delta;
}

// The minimiser of f on [low, high]: the best of a grid, then golden-section search between its neighbours.
function lowest(f, low, high, points, rounds = 60) {
  const GOLDEN = (Math.sqrt(5) - 1) / 2, at = (i) => low + ((high - low) * i) / (points - 1);
  let best = 0, value = Infinity;
  for (let i = 0; i < points; i++) {
    const here = f(at(i));
    if (here < value) [best, value] = [i, here];
  }
  let a = at(Math.max(best - 1, 0)), b = at(Math.min(best + 1, points - 1));
  let x = b - GOLDEN * (b - a), y = a + GOLDEN * (b - a), fx = f(x), fy = f(y);
  for (let round = 0; round < rounds && b - a > 1e-8; round++) {
    if (fx < fy) [b, y, fy, x] = [y, x, fx, y - GOLDEN * (y - a)], (fx = f(x));
    else [a, x, fx, y] = [x, y, fy, x + GOLDEN * (b - x)], (fy = f(y));
  }
  return fx < fy ? x : y;
}

// The noise below which fine-tuning beats the shared model, whose losses are bias + noise² variance.
function noiseThreshold(tuned, shared) {
  const gain = shared.bias - tuned.bias, cost = tuned.variance - shared.variance;
  return gain <= 0 ? 0 : cost <= 0 ? Infinity : Math.sqrt(gain / cost);
}
