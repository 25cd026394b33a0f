// What is set on the page: its controls, their ranges, and how the address bar carries them.

const COUNTS = [
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000, 10000,
];

// A slider has whole positions; `at` gives the value of one. Whatever a field takes lies between least and most.
const linear = (low, high, count) => ({ count, at: (i) => rounded(low + ((high - low) * i) / count) });
const logarithmic = (low, high, count) => ({ count, at: (i) => rounded(low * (high / low) ** (i / count)) });
const listed = (values) => ({ count: values.length - 1, at: (i) => values[i] });
const rounded = (value) => Number(value.toPrecision(3));

const CONTROLS = [
  {
    key: "radius", group: "clients", label: "Radius", letter: "r", about: "how far clients differ",
    slider: linear(0, 3, 150), least: 0, most: 1000,
  },
  {
    key: "noise", group: "clients", label: "Noise", letter: "σ", about: "of the labels",
    slider: linear(0, 3, 150), least: 0, most: 1000,
  },
  {
    key: "aspect", group: "clients", label: "Aspect", letter: "γ", about: "unknowns per sample of a client",
    slider: logarithmic(0.1, 20, 200), least: 0.001, most: 1000,
  },
  {
    key: "norm", group: "clients", label: "Norm", letter: "ρ", about: "length of a client's optimum",
    slider: linear(0, 5, 250), least: 0, most: 1000,
  },
  {
    key: "clients", group: "federation", label: "Clients", letter: "m", about: "a whole number, or inf",
    slider: listed([...COUNTS, Infinity]), least: 1, most: 1e6, whole: true, word: "inf", value: Infinity, shown: "infinitely many",
  },
  {
    key: "correlation", group: "features", label: "Correlation", about: "of neighbouring features",
    slider: linear(-0.95, 0.95, 190), least: -0.95, most: 0.95, kind: "ar1",
  },
  {
    key: "exponent", group: "features", label: "Exponent", about: "how fast eigenvalues fall",
    slider: linear(0, 3, 150), least: 0, most: 5, kind: "power_law",
  },
  {
    key: "contrast", group: "features", label: "Contrast", about: "strong over weak eigenvalue",
    slider: logarithmic(1, 100, 200), least: 1, most: 10000, kind: "two",
  },
  {
    key: "share", group: "features", label: "Share of strong features",
    slider: linear(0.01, 0.99, 98), least: 0.001, most: 0.999, kind: "two",
  },
  {
    key: "shift_power", group: "features", label: "Alignment", letter: "p", about: "clients differ along strong (+) or weak (−) features",
    slider: linear(-2, 2, 80), least: -5, most: 5,
  },
  {
    key: "ridge", group: "tuning", label: "Ridge", letter: "λ", about: "a number above 0, or best",
    slider: listed([null, ...Array.from({ length: 101 }, (_, i) => rounded(0.001 * 10 ** (i / 20)))]),
    least: 1e-6, most: 1e6, word: "best", value: null, shown: "each its best",
  },
  {
    key: "steps", group: "tuning", label: "Fine-tuning steps", letter: "t", about: "gradient steps of ftfa, or inf",
    slider: listed([0, ...COUNTS, Infinity]), least: 0, most: 1e6, whole: true, word: "inf", value: Infinity, shown: "to convergence",
  },
  {
    key: "rounds", group: "rounds", label: "Rounds", letter: "R",
    slider: listed(COUNTS.slice(0, 25)), least: 1, most: 1000, whole: true,
  },
  {
    key: "local_steps", group: "rounds", label: "Local steps", letter: "K", about: "of a drawn client, on all its samples",
    slider: listed(COUNTS.slice(0, 25)), least: 1, most: 10000, whole: true,
  },
  {
    key: "server_step", group: "rounds", label: "Size of a local step", letter: "η",
    slider: logarithmic(0.001, 1, 120), least: 1e-6, most: 100,
  },
  {
    key: "cohort", group: "rounds", label: "Cohort", letter: "D", about: "clients in a round, at most all",
    slider: listed(COUNTS), least: 1, most: 1e6, whole: true,
  },
  {
    key: "enrolled", group: "rounds", label: "Clients in all", letter: "m",
    slider: listed([...COUNTS.slice(9), 20000, 50000, 100000]), least: 2, most: 1e6, whole: true,
  },
  {
    key: "epsilon", group: "privacy", label: "Budget", letter: "ε", about: "0.25 to 16, or none",
    slider: listed([...Array.from({ length: 61 }, (_, i) => rounded(0.25 * 64 ** (i / 60))), null]),
    least: 0.25, most: 16, word: "none", value: null, shown: "no privacy",
  },
  {
    key: "dimension", group: "privacy", label: "Unknowns", letter: "d", about: "numbers that a client sends",
    slider: listed([1, 10, 100, 1000, 10000, 100000].flatMap((size) => [10 * size, 20 * size, 50 * size])), least: 1, most: 1e9, whole: true,
  },
];
const CONTROL = Object.fromEntries(CONTROLS.map((control) => [control.key, control]));
const AMONG = {
  plain: ["local", "fedavg", "ftfa", "maml"],
  all: Object.keys(ALGORITHMS),
  ridge: ["local_ridge", "rtfa", "pfedme", "pfedme_ridge"],
};
const KINDS = { identity: [], ar1: ["correlation"], power_law: ["exponent"], two: ["contrast", "share"], atoms: ["atoms"] };
const START = {
  radius: 1, noise: 0.5, aspect: 2, norm: 2, clients: Infinity, member: true, kind: "identity", correlation: 0.5, exponent: 1,
  contrast: 6, share: 0.4, atoms: "0.5@0.6,3@0.4", shift_power: 0, ridge: null, steps: 4, among: "plain", tab: "theory",
  rounds: 50, local_steps: 5, server_step: 0.1, cohort: 100, enrolled: 1000, epsilon: 4, dimension: 1000,
};

const typed = (control, value) => (value === control.value ? control.word : String(value));

// The value that a text means, or a sentence on what is wrong with it.
function parsed(control, text) {
  const word = text.trim().toLowerCase();
  if (control.word !== undefined && [control.word, "∞", "infinity"].includes(word)) return { value: control.value };
  const value = word === "" ? NaN : Number(word.replace(",", "."));
  const or = control.word ? `, or ${control.word}` : "", what = control.whole ? "a whole number" : "a number";
  const wrong = `${control.label} is "${text.trim()}": give ${what} from ${control.least} to ${control.most}${or}.`;
  const good = value >= control.least && value <= control.most && (!control.whole || Number.isInteger(value));
  return good ? { value } : { wrong };
}

// Eigenvalues with shares, as on the command line: 0.5@0.6,3@0.4.
function parsedAtoms(text) {
  const pairs = text.split(",").map((part) => part.split("@").map((piece) => (piece.trim() === "" ? NaN : Number(piece))));
  const values = pairs.map(([value]) => value), weights = pairs.map(([, weight]) => weight);
  const told = `Eigenvalues are "${text.trim()}": `;
  if (pairs.some((pair) => pair.length !== 2 || pair.some((each) => !Number.isFinite(each) || each < 0))) {
    return { wrong: `${told}write each as value@share, such as 0.5@0.6,3@0.4, with numbers of at least 0.` };
  }
  if (pairs.length > 64) return { wrong: `${told}there are ${pairs.length}; give at most 64.` };
  if (Math.abs(sum(weights) - 1) > 1e-9) return { wrong: `${told}the shares sum to ${number(sum(weights))}; they must sum to 1.` };
  if (!values.some((value, k) => value > 0 && weights[k] > 0)) return { wrong: `${told}at least one must be above 0.` };
  return { values, weights };
}

// The spectrum of a state; figures that need no more digits than a screen has take fewer points.
function spectrumFor(state, points = null) {
  if (state.kind === "identity") return spectrumOf([1], [1]);
  if (state.kind === "ar1") return ar1(state.correlation, points);
  if (state.kind === "power_law") return powerLaw(state.exponent, points ?? 128);
  const { values, weights } = state.kind === "two" ? twoKinds(state) : parsedAtoms(state.atoms);
  return spectrumOf(values, weights);
}

// Weak and strong eigenvalues of mean 1.
function twoKinds({ contrast, share }) {
  const weak = 1 / (1 - share + share * contrast);
  return { values: [weak, weak * contrast], weights: [1 - share, share] };
}

function viewOf(state, points = null) {
  const { radius, noise, aspect, norm, clients, member, ridge, shift_power } = state;
  return { radius, noise, aspect, norm, clients, member, ridge, shift_power, spectrum: spectrumFor(state, points) };
}

const ADDRESSED = ["radius", "noise", "aspect", "norm", "clients", "shift_power", "ridge", "steps"];
const ROUNDED = ["rounds", "local_steps", "server_step", "cohort", "enrolled", "epsilon", "dimension"]; // of their own tab

const spectrumText = (state) => [state.kind, KINDS[state.kind].map((key) => state[key]).join(",")].filter(Boolean).join(":");

function addressOf(state) {
  const said = {};
  for (const key of ADDRESSED) said[key] = typed(CONTROL[key], state[key]);
  for (const key of ROUNDED) if (state.tab === "rounds" || state[key] !== START[key]) said[key] = typed(CONTROL[key], state[key]);
  Object.assign(said, { member: state.member ? "yes" : "no", spectrum: spectrumText(state), among: state.among, tab: state.tab });
  const written = (value) => encodeURIComponent(value).replace(/%(2C|3A|40)/g, decodeURIComponent); // , : @ need no escape
  return `#${Object.entries(said).map(([key, value]) => `${key}=${written(value)}`).join("&")}`;
}

// The state of an address, and sentences on what in it could not be used.
function readAddress(hash) {
  const state = { ...START }, wrong = [], said = new URLSearchParams(hash.replace(/^#/, ""));
  function take(key, text) {
    const found = parsed(CONTROL[key], text);
    if (found.wrong) wrong.push(`${found.wrong} ${typed(CONTROL[key], state[key])} is shown.`);
    else state[key] = found.value;
  }
  const choices = { member: { yes: true, no: false }, among: same(Object.keys(AMONG)), tab: same(["theory", "rounds", "data"]) };
  for (const [key, text] of said) {
    if (Object.hasOwn(choices, key)) {
      if (Object.hasOwn(choices[key], text)) state[key] = choices[key][text];
    } else if (key === "spectrum") takeSpectrum(text, state, take, wrong);
    else if (Object.hasOwn(CONTROL, key)) take(key, text);
  }
  return { state, wrong: [...wrong, ...withoutZeros(state)] };
}

const same = (words) => Object.fromEntries(words.map((word) => [word, word]));

function takeSpectrum(text, state, take, wrong) {
  const colon = text.indexOf(":"), kind = colon < 0 ? text : text.slice(0, colon), rest = colon < 0 ? "" : text.slice(colon + 1);
  if (!Object.hasOwn(KINDS, kind)) {
    wrong.push(`Spectrum is "${text}": choose from ${Object.keys(KINDS).join(", ")}. identity is shown.`);
  } else if (kind === "atoms") {
    const found = parsedAtoms(rest);
    if (found.wrong) wrong.push(`${found.wrong} identity is shown.`);
    else Object.assign(state, { kind, atoms: rest });
  } else {
    state.kind = kind;
    const given = rest === "" ? [] : rest.split(",");
    KINDS[kind].forEach((key, at) => given[at] !== undefined && take(key, given[at]));
  }
}

// Along features that do not vary no client can differ most: the alignment is put back to 0, with a word.
function withoutZeros(state) {
  if (state.shift_power >= 0 || state.kind !== "atoms" || !parsedAtoms(state.atoms).values.includes(0)) return [];
  state.shift_power = 0;
  return ["Some eigenvalues are 0, so the alignment must be at least 0: 0 is shown."];
}

// The command that prints the same numbers.
function commandOf(state) {
  const short = (value) => Number(value.toPrecision(12)), { values, weights } = twoKinds(state);
  const two = `atoms:${values.map((value, k) => `${short(value)}@${short(weights[k])}`).join(",")}`;
  const spectrum = state.kind === "two" ? two : spectrumText(state);
  const said = ["radius", "noise", "aspect", "norm"].map((key) => `--${key} ${state[key]}`);
  if (state.kind !== "identity") said.push(`--spectrum ${spectrum}`);
  if (state.shift_power !== 0) said.push(`--shift-power ${state.shift_power}`);
  if (state.clients !== Infinity) said.push(`--clients ${state.clients}${state.member ? "" : " --new-client"}`);
  if (state.ridge !== null) said.push(`--ridge ${state.ridge}`);
  return `fedasym predict ${said.join(" ")}`;
}
