const TOLERANCE = { f64: 1e-9, f32: 1e-4, f16: 2e-2, bf16: 5e-2 }; // shares of the largest result
const DECODED = { f16: f16Value, bf16: bf16Value };
const ENCODED = { f16: f16Bits, bf16: bf16Bits };
let seed = 1;

function random() {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32;
}

/** Random elements: of floats between -1 and 1; of integers, which may be indices, below the least extent and 8. */
function filled(tensor, limit) {
  const whole = !(tensor.dtype in TOLERANCE), array = new tensor.kind(tensor.length);
  const encoded = ENCODED[tensor.dtype] ?? (array instanceof BigInt64Array || array instanceof BigUint64Array ? BigInt : (x) => x);
  for (let n = 0; n < array.length; n++) {
    array[n] = encoded(whole ? Math.floor(random() * (tensor.dtype === "bool" ? 2 : limit)) : 2 * random() - 1);
  }
  return array;
}

function decodedArray(tensor, array) {
  return tensor.dtype in DECODED ? Array.from(array, DECODED[tensor.dtype]) : array;
}

/** The largest difference, as a share of the largest finite result. */
function difference(tensor, found, wanted) {
  const [a, b] = [decodedArray(tensor, found), decodedArray(tensor, wanted)];
  let largest = 0, scale = 0;
  for (let n = 0; n < a.length; n++) {
    if (a[n] === b[n] || (a[n] !== a[n] && b[n] !== b[n])) {
      if (Number.isFinite(Number(b[n]))) scale = Math.max(scale, Math.abs(Number(b[n])));
      continue;
    }
    scale = Math.max(scale, Math.abs(Number(b[n])));
    const gap = Math.abs(Number(a[n]) - Number(b[n]));
    largest = gap === gap ? Math.max(largest, gap) : Infinity;
  }
  return largest === 0 ? 0 : largest / (scale || 1);
}

/** The least seconds that a call takes, of as many as fit in a budget, 2,000 at most: the clock may stand still. */
function best(run, budget) {
  const end = performance.now() + budget;
  let least = Infinity;
  for (let count = 1, calls = 0; calls < 2000 && performance.now() <= end; calls += count) {
    const start = performance.now();
    for (let n = 0; n < count; n++) run();
    const took = performance.now() - start;
    least = Math.min(least, took / count);
    if (took < 5) count *= 2;
  }
  return least / 1000;
}

function outcome(run) {
  try {
    return run() ?? 0;
  } catch (error) {
    return error.number ?? error;
  }
}

function examined(shown, loaded) {
  const data = shown.tensors.map((t) => (t.read ? filled(t, shown.limit) : new t.kind(t.length)));
  const given = Object.fromEntries(shown.tensors.map((t, n) => [t.name, t.byValue ? data[n][0] : data[n].slice()]));
  const plainData = new Map(shown.tensors.map((t, n) => [t.argument, data[n].slice()]));
  for (const [argument, array] of Object.entries(shown.constants)) plainData.set(argument, array);
  const plain = () => shown.plain(...shown.arguments.map((a) => plainData.get(a)));
  const wanted = plain(), number = outcome(() => void loaded[shown.name](given));
  if (number !== 0 || wanted !== 0) {
    return { right: number === wanted, note: `number ${number}, of plain JavaScript ${wanted}` };
  }
  let right = true, largest = 0;
  for (const t of shown.tensors.filter((t) => t.written)) {
    const found = difference(t, given[t.name], plainData.get(t.argument));
    right &&= found <= (TOLERANCE[t.dtype] ?? 0);
    largest = Math.max(largest, found);
  }
  const inside = Object.fromEntries(shown.tensors.map((t, n) => [t.name, t.byValue ? data[n][0] : loaded.alloc(t.kind, t.length)]));
  shown.tensors.forEach((t, n) => t.byValue || inside[t.name].array.set(data[n]));
  const seconds = [best(() => loaded[shown.name](inside), 400), best(plain, 400)];
  return { right, note: `largest difference ${largest.toExponential(1)} of the largest result`, seconds };
}

function element(parent, name, text = "") {
  const made = parent.appendChild(document.createElement(name));
  made.textContent = text;
  return made;
}

function row(table, cells, kind = "td") {
  const line = element(table, "tr");
  for (const cell of cells) element(line, kind, cell);
}

function report(shown, found) {
  const section = element(document.querySelector("main"), "section");
  element(section, "h2", shown.name);
  element(section, "pre", shown.text);
  element(section, "p", `${found.right ? "Right" : "WRONG"}: ${found.note}.`).dataset.right = found.right;
  if (!found.seconds) return;
  const table = element(section, "table"), rate = (s) => (shown.flops ? (shown.flops / s / 1e9).toFixed(2) : "");
  row(table, ["", "ms", shown.flops ? "GFLOP/s" : ""], "th");
  found.seconds.forEach((s, n) => row(table, [["WebAssembly", "plain JavaScript"][n], (s * 1000).toPrecision(3), rate(s)]));
}

const status = document.querySelector("#status");
try {
  const loaded = await load(Uint8Array.from(atob(WASM), (c) => c.charCodeAt(0)));
  let right = true;
  for (const shown of SHOWN) {
    await new Promise((resolve) => setTimeout(resolve));
    const found = examined(shown, loaded);
    right &&= found.right;
    report(shown, found);
  }
  status.textContent = right ? "All results are right." : "Some results are WRONG.";
  status.dataset.right = right;
} catch (error) {
  status.textContent = `${error}`;
  status.dataset.right = false;
}
