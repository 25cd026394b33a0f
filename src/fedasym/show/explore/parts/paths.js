// Early-stopped fine-tuning (docs/learn/6): after t gradient steps the shared model's error is f(S) times itself, f(x) = (1 - step x)^t.
//
// Traces of f(S), equations (18) to (20), are integrals around the spectrum of S. Drawn for kappa instead of z they need no root
// finding: z = -kappa (1 - gamma df1(kappa)). Complex numbers are pairs of arrays, such as (kr, ki).

const OPENINGS = [30, 45, 60, 75].map((degrees) => (degrees * Math.PI) / 180);
const LONGEST = 1e7; // steps searched for the best stop

// The smallest nonzero and the largest eigenvalue of the sample covariance.
function support(gamma, spectrum) {
  const { minus, plus } = edges(gamma, spectrum), { s, h, rank } = spectrum;
  const low = -minus * slack(sums(minus, spectrum), gamma, rank);
  return { low: Math.max(low, 0), high: -plus * (1 - gamma * dot(h, s.map((each) => each / (each + plus)))) };
}

// An arc through two real points that encloses the spectrum and zero: it crosses z = -reach, and stays below `furthest`.
function arc(here, reach, furthest) {
  const { s, h, gamma } = here, top = Math.max(...s), gap = s.map((each) => top - each);
  const right = kappa(reach, gamma, here), { minus, plus } = edges(gamma, here), start = kappa(0, gamma, here);
  let level = gamma * sums(right, here).df2, left;
  for (;;) {
    left = -top - distance(gap, gamma / level, here);
    if (level > 0.9999 || -left * (1 - gamma * dot(h, s.map((each) => each / (each + left)))) <= furthest) break;
    level = Math.sqrt(level); // nearer to the spectrum
  }
  const gaps = [Math.min(right - minus, right - start), plus - left]; // where singularities come near, or f turns quickly
  const found = { right, left, gaps, opening: Math.PI / 2 };
  // A circle always lies on the right branch; a lens, along which f decays before it oscillates, where this holds too.
  const fits = (opening) => {
    const { kr, ki } = points({ ...found, opening }, 6);
    return kr.every((re, j) => gamma * dot(h, s.map((each) => each ** 2 / ((each + re) ** 2 + ki[j] ** 2))) <= (1 + level) / 2);
  };
  return { ...found, opening: OPENINGS.find(fits) ?? Math.PI / 2 };
}

// kappa and the weights of dkappa/(2 pi i) at the nodes of the upper half.
function points({ right, left, gaps, opening }, count) {
  const across = (right - left) / (2 * Math.sin(opening)), { x, w } = gauss(count);
  const panels = graded(2 * opening, gaps[0] / across, gaps[1] / across), n = (panels.length - 1) * count;
  const kr = new Float64Array(n), ki = new Float64Array(n), wr = new Float64Array(n), wi = new Float64Array(n);
  const turn = Math.PI / 2 - opening, startR = across * Math.cos(turn), startI = across * Math.sin(turn);
  for (let j = 0; j < n; j++) {
    const panel = Math.floor(j / count), length = panels[panel + 1] - panels[panel];
    const angle = panels[panel] + (length * (x[j % count] + 1)) / 2, weight = (length * w[j % count]) / (4 * Math.PI);
    const chord = 2 * across * Math.sin(angle / 2), heading = turn + Math.PI / 2 + angle / 2; // from the right end: nothing cancels
    kr[j] = right + chord * Math.cos(heading);
    ki[j] = chord * Math.sin(heading);
    wr[j] = (startR + chord * Math.cos(heading)) * weight;
    wi[j] = (startI + ki[j]) * weight;
  }
  return { kr, ki, wr, wi };
}

// z, df1 and (1 - gamma df2)/(1 - gamma df1) dkappa/(2 pi i) at the nodes.
function nodesOf(here, path, count) {
  const { s, h, gamma, rank } = here, { kr, ki, wr, wi } = points(path, count), n = kr.length;
  const zr = new Float64Array(n), zi = new Float64Array(n), dr = new Float64Array(n), di = new Float64Array(n);
  for (let j = 0; j < n; j++) {
    let nearR = 0, nearI = 0, farR = 0, farI = 0, mixR = 0, mixI = 0;
    for (let i = 0; i < s.length; i++) {
      const re = s[i] + kr[j], size = re * re + ki[j] * ki[j], nr = (s[i] * re) / size, ni = (-s[i] * ki[j]) / size;
      const fr = (kr[j] * re + ki[j] * ki[j]) / size, fi = (ki[j] * s[i]) / size;
      nearR += h[i] * nr, nearI += h[i] * ni, farR += h[i] * fr, farI += h[i] * fi;
      mixR += h[i] * (nr * fr - ni * fi), mixI += h[i] * (nr * fi + ni * fr);
    }
    const beyond = Math.hypot(farR, farI) < Math.hypot(nearR, nearI);
    const roomR = beyond ? 1 - gamma * rank + gamma * farR : 1 - gamma * nearR, roomI = beyond ? gamma * farI : -gamma * nearI;
    zr[j] = -(kr[j] * roomR - ki[j] * roomI), zi[j] = -(kr[j] * roomI + ki[j] * roomR);
    const size = roomR ** 2 + roomI ** 2, fullR = roomR + gamma * mixR, fullI = roomI + gamma * mixI;
    const qr = (fullR * roomR + fullI * roomI) / size, qi = (fullI * roomR - fullR * roomI) / size;
    [wr[j], wi[j]] = [qr * wr[j] - qi * wi[j], qr * wi[j] + qi * wr[j]];
    dr[j] = nearR, di[j] = nearI;
  }
  return { n, kr, ki, zr, zi, dr, di, wr, wi };
}

// The logarithm of f at a node after one step.
function logStep(step, zr, zi) {
  const a = -step * zr, b = -step * zi;
  return { size: 0.5 * Math.log1p(a * (2 + a) + b * b), turn: Math.atan2(b, 1 + a) };
}

// A function of t: bias and variance after t steps from a shared model whose error has the energy here.g (times r2), and
// `blur`, energy that noise left in it, which adds to the variance. Long work here is a generator, so that a page stays alive.
function* stopped(here, step, longest, blur, count) {
  const { low, high } = support(here.gamma, here), rate = Math.min(step * low, 2 - step * high), end = rate > 0 ? 40 / rate : Infinity;
  const last = Math.min(longest, end), reach = Math.min(Math.max(1 / (last * step), high * 1e-14), high);
  let room = high / 2, path; // f has decayed there
  for (let round = 0; round < 40; round++) {
    path = arc(here, reach, high + room);
    const few = nodesOf(here, path, 6);
    if (few.zr.every((re, j) => last * logStep(step, re, few.zi[j]).size < Math.log(4))) break;
    room /= 2;
  }
  const at = nodesOf(here, path, count), logs = Array.from(at.zr, (re, j) => logStep(step, re, at.zi[j]));
  function* through(energy) {
    if (here.scale === null && energy !== here.h) return yield* kernel(here, at, energy);
    return (t) => (energy === here.h ? 1 : sum(energy)) * evenly(t);
  }
  const power = (j, t) => (t === 0 ? [1, 0] : polar(Math.exp(t * logs[j].size), t * logs[j].turn));

  function evenly(t) { // L[f²]
    let total = 0;
    for (let j = 0; j < at.n; j++) {
      const [fr, fi] = power(j, 2 * t);
      total += 2 * (fr * (at.dr[j] * at.wr[j] - at.di[j] * at.wi[j]) - fi * (at.dr[j] * at.wi[j] + at.di[j] * at.wr[j]));
    }
    return total;
  }

  function noise(t) { // L[(1 - f)²/x]
    let total = 0;
    for (let j = 0; t > 0 && j < at.n; j++) {
      const a = t * logs[j].size, b = t * logs[j].turn;
      const ur = 2 * Math.sin(b / 2) ** 2 - Math.expm1(a) * Math.cos(b), ui = -Math.exp(a) * Math.sin(b); // 1 - f
      const sr = ur * ur - ui * ui, si = 2 * ur * ui, size = at.zr[j] ** 2 + at.zi[j] ** 2;
      const vr = (sr * at.zr[j] + si * at.zi[j]) / size, vi = (si * at.zr[j] - sr * at.zi[j]) / size;
      const er = at.dr[j] * at.wr[j] - at.di[j] * at.wi[j], ei = at.dr[j] * at.wi[j] + at.di[j] * at.wr[j];
      total += 2 * (vr * er - vi * ei);
    }
    return total;
  }

  const shift = yield* through(here.g), blurred = blur === null ? () => 0 : yield* through(blur);
  return (t) => {
    if (t >= end) {
      const own = interpolated(here), extra = blur === null ? 0 : interpolated(from(here, blur, 0)).bias;
      return { bias: own.bias, variance: own.variance + extra };
    }
    const noisy = here.s2 * here.gamma * Math.max(noise(t), 0);
    return { bias: here.r2 * Math.max(shift(t, power), 0), variance: noisy + Math.max(blurred(t, power), 0) };
  };
}

const polar = (size, turn) => [size * Math.cos(turn), size * Math.sin(turn)];

// The limit of Delta' f(S) Sigma f(S) Delta with the given energy of Delta per atom, equation (20), as a function of t and f. It is
// a quadratic form in f at the nodes and their conjugates: of its real and imaginary parts, by `even`, `odd` and `mixed`.
function* kernel({ s, h, gamma }, at, energy) {
  const { n, kr, ki, wr, wi } = at, even = new Float64Array(n * n), odd = new Float64Array(n * n), mixed = new Float64Array(n * n);
  const count = s.length, top = s.map((each, i) => energy[i] * each), rest = s.map((each, i) => gamma * h[i] * each * each);
  const ir = new Float64Array(n * count), ii = new Float64Array(n * count); // 1/(s + kappa)
  for (let j = 0; j < n; j++) {
    for (let i = 0; i < count; i++) {
      const size = (s[i] + kr[j]) ** 2 + ki[j] ** 2;
      ir[j * count + i] = (s[i] + kr[j]) / size;
      ii[j * count + i] = -ki[j] / size;
    }
  }
  for (let a = 0; a < n; a++) {
    yield;
    for (let b = 0; b <= a; b++) { // with the node b, and with its conjugate
      let topR = 0, topI = 0, roomR = 1, roomI = 0, farR = 0, farI = 0, spaceR = 1, spaceI = 0;
      for (let i = 0, mine = a * count, other = b * count; i < count; i++, mine++, other++) {
        const rr = ir[mine] * ir[other], jj = ii[mine] * ii[other], ri = ir[mine] * ii[other], jr = ii[mine] * ir[other];
        topR += top[i] * (rr - jj), topI += top[i] * (ri + jr), roomR -= rest[i] * (rr - jj), roomI -= rest[i] * (ri + jr);
        farR += top[i] * (rr + jj), farI += top[i] * (jr - ri), spaceR -= rest[i] * (rr + jj), spaceI -= rest[i] * (jr - ri);
      }
      const size = roomR ** 2 + roomI ** 2, space = spaceR ** 2 + spaceI ** 2;
      const nearR = (topR * roomR + topI * roomI) / size, nearI = (topI * roomR - topR * roomI) / size;
      const awayR = (farR * spaceR + farI * spaceI) / space, awayI = (farI * spaceR - farR * spaceI) / space;
      even[a * n + b] = even[b * n + a] = nearR + awayR;
      odd[a * n + b] = odd[b * n + a] = nearR - awayR;
      mixed[a * n + b] = nearI + awayI;
      mixed[b * n + a] = nearI - awayI;
    }
  }
  const fr = new Float64Array(n), fi = new Float64Array(n);
  return (t, power) => {
    for (let j = 0; j < n; j++) {
      const [pr, pi] = power(j, t);
      fr[j] = pr * wr[j] - pi * wi[j];
      fi[j] = pr * wi[j] + pi * wr[j];
    }
    let total = 0;
    for (let a = 0; a < n; a++) {
      let byReal = 0, byTurn = 0, crossed = 0;
      for (let b = 0, row = a * n; b < n; b++, row++) {
        byReal += fr[b] * even[row];
        byTurn += fi[b] * odd[row];
        crossed += fr[b] * mixed[row];
      }
      total += 2 * (fr[a] * byReal - fi[a] * (byTurn + 2 * crossed));
    }
    return total;
  };
}

// The number of steps with the lowest loss (Infinity: train to convergence), by a geometric grid and a zoom over whole numbers.
function* bestStop(evaluate, longest) {
  const known = new Map();
  function loss(t) {
    if (!known.has(t)) {
      const { bias, variance } = evaluate(t);
      known.set(t, bias + variance);
    }
    return known.get(t);
  }
  const count = 80, grid = new Set([0]);
  for (let i = 0; i <= count; i++) grid.add(Math.round(longest ** (i / count)));
  const times = [...grid].sort((a, b) => a - b);
  for (const t of times) {
    loss(t);
    yield;
  }
  const values = times.map(loss), least = Math.min(...values);
  if (loss(Infinity) <= least * (1 + 1e-9)) return Infinity;
  const place = values.indexOf(least);
  let low = times[Math.max(place - 1, 0)], high = times[Math.min(place + 1, times.length - 1)];
  while (high - low > 2) {
    const third = Math.max(1, Math.floor((high - low) / 3)), x = low + third, y = high - third;
    if (loss(x) <= loss(y)) high = y;
    else low = x;
    yield;
  }
  let best = low;
  for (let t = low; t <= high; t++) if (loss(t) < loss(best)) best = t;
  return best;
}

// The value of a generator, at once.
function finish(work) {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
  }
}
