// Finitely many equal clients (docs/learn/5), for a member and for a newcomer; section and equation numbers of docs/notation.md.

const CRITICAL = 1e-12; // pooled samples that match the unknowns to within this share leave the shared model undetermined
const SEARCH = { points: 48, rounds: 60 }; // for a member's best ridge

const CROWDED = "the pooled samples are fewer than the unknowns: the norm must be at least the radius, along every feature";

class NoFormula extends Error {}

// The averaged model of m clients: sum p S ~ m c Sigma and K = (mu + m c Sigma)^-1, equations (14) and (15). Crowded federations
// (fewer samples than unknowns) interpolate: mu = 1, and the energy of theta_0 per atom, `centre`, matters.
function pool(here, m, centre) {
  const { s, h, g, gamma, rank, r2, s2 } = here, ratio = (gamma * rank) / m, crowded = ratio > 1;
  if (crowded && centre === null) throw new NoFormula(CROWDED);
  const k = crowded ? kappa(0, gamma / m, here) : 0;
  const c = crowded ? 1 / (m * k) : (1 - ratio) / m;
  const K = s.map((each) => (crowded ? k / (each + k) : 1 / (m * c * each)));
  const damping = c * c * gamma, room = 1 - damping * m * dot(h, s.map((each, i) => (each * K[i]) ** 2));
  const direct = { bias: r2 * dot(g, s.map((each, i) => each * (1 - 2 * c * each * K[i]))), noise: s2 };
  const drive = s.map((each, i) => m * r2 * c * c * (g[i] / h[i]) * each ** 2 + (crowded ? centre[i] / h[i] : 0));

  // Energy per direction of theta_0_hat - theta_0.
  function spread(own, drives) {
    const y = (damping * (own + dot(h, s.map((each, i) => each * K[i] ** 2 * drives[i])))) / room;
    return K.map((each, i) => each ** 2 * (drives[i] + m * y * s[i]));
  }
  const bias = spread(direct.bias, drive), noise = spread(direct.noise, s.map(() => 0));
  return { m, c, K, damping, direct, bias, noise };
}

// FedAvg's risk for a member.
function pooledMember(here, pooled) {
  const weight = here.s.map((s, i) => s * here.h[i]);
  return { bias: dot(weight, pooled.bias) + pooled.direct.bias, variance: dot(weight, pooled.noise) };
}

// A newcomer starts from a shared model whose error has the energy `shift` (displacements) and `blur` (noise) per atom.
function newcomer(here, pooled) {
  return {
    shift: pooled.bias.map((each, i) => each * here.h[i] + here.r2 * here.g[i]),
    blur: pooled.noise.map((each, i) => each * here.h[i]),
  };
}

const from = (here, energy, s2) => ({ ...here, r2: 1, s2, g: energy, total: sum(energy), isotropic: false });

function newcomerRisk(stage, here, ridge, { shift, blur }) {
  const away = from(here, shift, here.s2), noisy = from(here, blur, 0);
  const used = stage !== "ridge" ? null : ridge ?? bestRidge(from(here, shift.map((each, i) => each + blur[i]), here.s2));
  const risk = (each) => (stage === "keep" ? kept(each) : shrunk(each, used ?? 0));
  const own = risk(away);
  return { bias: own.bias, variance: own.variance + risk(noisy).bias, ridge: used };
}

// A member: given its own samples, the others act on the shared model through diagonal matrices N and Y (section 6.4).
function membership(here, pooled) {
  const { s, h, g, gamma, r2, s2 } = here, { m, c, K, damping, direct } = pooled, others = m - 1;
  const N = s.map((each) => others * c * each), weight = K.map((each, i) => h[i] * each * each);
  const touch = dot(weight, s.map((each) => each * each)), extra = damping / (1 - damping * touch);
  const around = (Y) => dot(weight, s.map((each, i) => each * Y[i])) * (1 + touch * extra);
  const room = 1 - damping * (touch + extra * touch ** 2) * others;
  function total(own, drive) {
    const y = (damping * (own + around(drive))) / room;
    return drive.map((each, i) => each + others * y * s[i]);
  }
  const drive = s.map((each, i) => r2 * (g[i] / h[i]) * (others * c * c * each ** 2 + N[i] ** 2));
  const mine = r2 * dot(g, s.map((each, i) => each * (1 - 2 * K[i] * N[i])));
  const loud = ((s2 * gamma) / m) * (dot(h, s.map((each, i) => each * K[i])) - around(N));
  return { N, c, m, bias: total(direct.bias + mine, drive), noise: total(direct.noise + loud, s.map(() => 0)) };
}

// Risk of a member after the ridge whose kappa is k; `fitted`: kappa' - 1, its own noise that it fits.
function memberRisk(here, member, k, fitted) {
  const around = through(here, member, k, fitted), own = (here.s2 * here.gamma) / member.m;
  const { straight, twice } = around.noise();
  const variance = around.energy(member.noise) + own * (straight - twice - around.energy(member.N)) + here.s2 * fitted;
  return { bias: around.energy(member.bias), variance };
}

// The same as one number, which is quicker: `energy` is linear.
function memberLoss(here, member, k, fitted) {
  const around = through(here, member, k, fitted), own = (here.s2 * here.gamma) / member.m, { straight, twice } = around.noise();
  const all = member.bias.map((each, i) => each + member.noise[i] - own * member.N[i]);
  return around.energy(all) + own * (straight - twice) + here.s2 * fitted;
}

// What ridge and the shared model, P and Q^-1, leave of what stands between them: products of resolvents.
function through(here, { c, N }, k, fitted) {
  const a = 1 / k, one = N.map(() => 1), room = 1 / (1 + fitted);
  return {
    energy: (Y) => pencil(here, [a, c, c, a], [one, N, N, one], [one, Y, one], room),
    noise: () => ({
      straight: 2 * pencil(here, [a, c], [one, N], [one], null),
      twice: pencil(here, [a, c, a], [one, N, one], [one, one], room),
    }),
  };
}

// tau(Sigma D1^-1 U1 D2^-1 ... Dq^-1) for D = fixed + (random part ~ A Sigma), equation (17) for one sample covariance: all
// blocks are upper triangular, so each entry follows from those nearer the diagonal. `ends`: 1/kappa' at the outermost.
function pencil({ s, h, gamma }, random, fixed, between, ends) {
  const q = random.length, n = s.length, A = [], G = [], W = [];
  for (let j = 0; j < q; j++) {
    A.push([]), G.push([]), W.push([]);
    A[j][j] = random[j];
    const diagonal = (G[j][j] = new Float64Array(n));
    for (let i = 0; i < n; i++) diagonal[i] = 1 / (fixed[j][i] + s[i] * random[j]);
  }
  for (let width = 1; width < q; width++) {
    for (let first = 0; first + width < q; first++) {
      const last = first + width, start = G[first][first], end = G[last][last], U = between[first];
      const free = new Float64Array(n), entry = (G[first][last] = free);
      for (let i = 0; i < n; i++) free[i] = U[i] * (width === 1 ? end[i] : G[first + 1][last][i]);
      let known = 0, fed = 0, looped = 0;
      for (let j = first + 1; j < last; j++) {
        const inner = G[j][last], weight = A[first][j];
        known += weight * gamma * W[j][last];
        for (let i = 0; i < n; i++) free[i] -= s[i] * weight * inner[i];
      }
      for (let i = 0; i < n; i++) {
        free[i] *= start[i];
        fed += h[i] * s[i] * free[i];
        looped += h[i] * s[i] * s[i] * start[i] * end[i];
      }
      known += random[first] * gamma * fed;
      const room = ends !== null && width === q - 1 ? ends : 1 - random[first] * random[last] * gamma * looped;
      const here = (A[first][last] = (-random[last] * known) / room);
      for (let i = 0; i < n; i++) entry[i] -= s[i] * start[i] * end[i] * here;
      W[first][last] = fed - looped * here;
    }
  }
  return W[0][q - 1];
}

function memberAtRidge(here, member, ridge) {
  const k = kappa(ridge, here.gamma, here);
  if (k === 0) return interpolated(here); // enough samples of its own: plain least squares
  const at = sums(k, here);
  return memberRisk(here, member, k, here.gamma * at.df2 * slope(at, k, ridge, here.gamma, here.rank));
}

function bestMemberRidge(here, member, search) {
  const { s, gamma, rank } = here, start = kappa(0, gamma, here), bayes = bayesRidge(here);
  if (bayes === Infinity) return Infinity;
  const least = Math.min(...s);
  const low = Math.log(1e-8 * Math.min(least, bayes > 0 ? bayes : least));
  const high = Math.log(1e6 * (Math.max(...s) * (1 + gamma) + bayes));
  function loss(u) {
    const k = start + Math.exp(u), at = sums(k, here);
    return memberLoss(here, member, k, (gamma * at.df2) / (slack(at, gamma, rank) + gamma * at.mixed));
  }
  const u = lowest(loss, low, high, search.points, search.rounds), k = start + Math.exp(u), plain = memberAtRidge(here, member, 0);
  return plain.bias + plain.variance <= loss(u) ? 0 : k * slack(sums(k, here), gamma, rank);
}

// FedAvg, FTFA and RTFA for a member.
function averagedMember(stage, here, ridge, pooled, search) {
  const shared = pooledMember(here, pooled);
  if (stage === "keep") return { ...shared, ridge: null };
  const member = membership(here, pooled);
  if (stage === "converge") return { ...memberAtRidge(here, member, 0), ridge: null };
  const used = ridge ?? bestMemberRidge(here, member, search);
  if (used === Infinity) return { ...shared, ridge: used };
  const risk = memberAtRidge(here, member, used);
  return ridge === null && shared.bias + shared.variance <= risk.bias + risk.variance
    ? { ...shared, ridge: Infinity }
    : { ...risk, ridge: used };
}

// pFedMe at lambda*: the best linear unbiased prediction, equation (13), which is equation (1) with another ridge and aspect.
function effective(here, m) {
  const gN = here.gamma / m, room = 1 - gN * here.rank, ridge = bayesRidge(here) / room, gamma = (here.gamma - gN) / room;
  const k = kappa(ridge, gamma, here), at = sums(k, here), growth = slope(at, k, ridge, gamma, here.rank);
  return {
    lag: k === 0 ? 0 : k * growth * gamma * at.mixed, // kappa_m - lambda* kappa_m'
    growth: growth / room,
    fitted: (growth * (gN * here.rank + (here.gamma - gN) * at.df2)) / room, // kappa_m' - 1
  };
}

function bestPredictor(here, m, member) {
  const { r2, s2, gamma, rank, s, h } = here, gN = (gamma * rank) / m, same = r2 === 0, ridge = bayesRidge(here);
  const { lag, growth, fitted } = same ? { lag: 0, growth: 1 / (1 - gN), fitted: gN / (1 - gN) } : effective(here, m);
  if (member) return { bias: (r2 / gamma) * lag, variance: s2 === 0 ? 0 : s2 * fitted, ridge };
  const shift = s.map((each, i) => h[i] * (r2 * (1 + 1 / m) + (r2 * lag) / (m * each)));
  const blur = s.map((each, i) => (s2 === 0 ? 0 : (h[i] * s2 * gamma * growth) / (m * each)));
  return newcomerRisk("ridge", here, ridge, { shift, blur });
}

// Both ridges at their best: the posterior mean where theta_0 has a prior, (T6) for any covariance. Noise enters through
// b = 1/(gamma (sigma² + R)) alone, with C = 1/(known + m b s/(1 + r² b s)) and R = sum h s [r² + C/(1 + r² b s)]/(1 + r² b s); bias
// and variance are derivatives of R along the scales of the squared lengths and of the noise.
function posterior(here, m, member, centre) {
  const { s, h, g, gamma, r2, total } = here, length = r2 * total + sum(centre);
  const s2 = Math.max(here.s2, 1e-14 * Math.max(length, 1e-300));
  const known = centre.map((each, i) => 1 / Math.max(each / h[i], 1e-200));

  // The next b and the risk, with their changes for changes of b, r², sigma² and `known` (as a share).
  function turn(b, db, dr2, ds2, share) {
    let risk = 0, change = 0;
    const moved = s.map((each, i) => {
      const v = b * each, dv = db * each, reach = 1 + r2 * v, dreach = dr2 * v + r2 * dv;
      const C = 1 / (known[i] + (m * v) / reach);
      const dC = -C * C * (share * known[i] + (m * (dv - (v * dreach) / reach)) / reach);
      const inner = r2 + C / reach;
      risk += (h[i] * each * inner) / reach;
      change += (h[i] * each * (dr2 + (dC - (C * dreach) / reach) / reach - (inner * dreach) / reach)) / reach;
      return dC;
    });
    const next = 1 / (gamma * (s2 + risk));
    return { next, slope: -gamma * next * next * (ds2 + change), change, moved };
  }
  let b = 1 / (gamma * s2);
  for (let round = 0; round < 2000; round++) {
    const { next, slope: steep } = turn(b, 1, 0, 0, 0), newton = b - (b - next) / (1 - steep);
    const then = newton > b / 4 && newton < 4 * b ? newton : next, done = Math.abs(then - b) <= CLOSE * b;
    b = then;
    if (done) break;
  }
  const loop = 1 - turn(b, 1, 0, 0, 0).slope;
  const along = (dr2, ds2, share) => turn(b, turn(b, 0, dr2, ds2, share).slope / loop, dr2, ds2, share);
  const away = along(r2, 0, -1), blur = along(0, s2, 0), ridge = bayesRidge(here);
  if (member) return { bias: away.change, variance: here.s2 === 0 ? 0 : blur.change, ridge };
  const shift = away.moved.map((each, i) => each * h[i] + r2 * g[i]);
  return newcomerRisk("ridge", here, ridge, { shift, blur: blur.moved.map((each, i) => each * h[i]) });
}

// Marchenko and Pastur's law: nodes that crowd towards its lower end, the atom at zero as the last.
function marchenkoPastur(gamma, nodes) {
  const root = Math.sqrt(gamma), { x: t, w } = gauss(nodes), x = [], weights = [];
  const panels = graded(Math.PI, Math.PI, Math.max(Math.abs(1 - root), 1e-9));
  for (let j = 0; j + 1 < panels.length; j++) {
    const length = panels[j + 1] - panels[j];
    for (let i = 0; i < nodes; i++) {
      const rest = Math.PI - panels[j + 1] + (length * (1 - t[i])) / 2; // the angle from the lower end
      const at = (1 - root) ** 2 + 4 * root * Math.sin(rest / 2) ** 2;
      x.push(at);
      weights.push(((length * w[i]) / Math.PI) * (Math.sin(rest) ** 2 / at));
    }
  }
  return { x: [...x, 0], w: [...weights, Math.max(1 - 1 / gamma, 0)] };
}

// Uncorrelated features: any server weights b(x) and client filter P(x), equations (10) and (11). First what the server does.
// `mu`: a ridge on the shared model (T2).
function subordination(b, gamma, m, nodes, mu = 0) {
  const { x, w } = marchenkoPastur(gamma, nodes), n = x.length, weight = x.map(b), f = x.map((each, i) => (each * weight[i]) / m);
  const mean = (value) => {
    let total = 0;
    for (let i = 0; i < n; i++) total += w[i] * value(i);
    return total;
  };
  // I[(f + mu/m)/(f + u)] = 1/m, by Newton on its logarithm, which is nearly straight in log u, kept in a bracket.
  const part = mu / m, goal = Math.log(mean(() => 1) - 1 + 1 / m);
  let low = -80, high = 40, at = 0;
  for (let round = 0; round < 120; round++) {
    const u = Math.exp(at);
    let rest = 0, steep = 0;
    for (let i = 0; i < n; i++) {
      const term = (w[i] * (f[i] + part)) / (f[i] + u);
      rest += term;
      steep += term / (f[i] + u);
    }
    const off = Math.log(rest) - goal, step = at + (off * rest) / (u * steep);
    if (off > 0) low = at;
    else high = at;
    const next = low <= step && step <= high ? step : (low + high) / 2, done = Math.abs(next - at) <= 1e-15;
    at = next;
    if (done) break;
  }
  const u = Math.exp(at), K1 = mean((i) => 1 / (f[i] + u)), K2 = mean((i) => 1 / (f[i] + u) ** 2);
  const nu = 1 / (m - ((m - 1) * K2) / K1 ** 2), cr = mean((i) => (f[i] / (f[i] + u)) ** 2);
  const cn = gamma * mean((i) => (weight[i] ** 2 * x[i]) / (m * (f[i] + u)) ** 2);
  return { x, mean, weight, f, u, K2, nu, cr, cn, m, gamma };
}

// Then what the client does; `fitted`: gamma int (1 - P)²/x where it is known in closed form; `pull`: a ridge mu on the shared
// model and the energy of theta_0 that it shrinks (T4), (T5).
function filtered(server, keep, r2, s2, member, fitted = null, pull = { mu: 0, energy: 0 }) {
  const { x, mean, weight, f, u, K2, nu, cr, cn, m, gamma } = server, P = x.map(keep), cost = pull.mu ** 2 * pull.energy * nu;
  let bias, variance;
  if (member) {
    const through = mean((i) => (P[i] / (f[i] + u)) ** 2);
    const reach = (i) => m * (f[i] + u);
    const own = mean((i) => x[i] * ((P[i] * weight[i]) / reach(i)) ** 2 + (2 * P[i] * (1 - P[i]) * weight[i]) / reach(i));
    bias = (r2 * (u ** 2 + ((m * nu - 1) * cr) / K2) + cost) * through;
    variance = s2 * (((m * nu - 1) * (cn / K2)) * through + gamma * own);
  } else {
    const through = mean((i) => P[i] ** 2);
    bias = (r2 * (1 + m * nu * cr) + cost * K2) * through;
    variance = s2 * m * nu * cn * through;
  }
  const noise = fitted ?? gamma * mean((i) => (x[i] > 0 ? (1 - P[i]) ** 2 / x[i] : 0));
  return { bias, variance: variance + (s2 === 0 ? 0 : s2 * noise) };
}

// Panels of [0, length] that halve towards both ends, down to the gaps `first` and `last`.
function graded(length, first, last) {
  const down = [length / 2], up = [length / 2];
  while (down.at(-1) > first) down.push(down.at(-1) / 2);
  while (up.at(-1) > last) up.push(up.at(-1) / 2);
  return [0, ...down.reverse(), ...up.slice(1).map((each) => length - each), length];
}
