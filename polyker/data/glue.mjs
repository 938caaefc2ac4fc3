const PAGE = 65536, ALIGNMENT = 64;

/** Memory that operators run on without copying. */
export class Allocation {
  #memory; #kind; #at; #bytes; #heap;
  constructor(memory, heap, kind, length) {
    if (!Number.isInteger(length) || length < 0) throw new RangeError("a length is a whole number");
    this.length = length;
    [this.#memory, this.#heap, this.#kind, this.#bytes] = [memory, heap, kind, length * kind.BYTES_PER_ELEMENT];
    this.#at = heap.take(this.#bytes);
  }
  /** The elements, as a new view each time: one that was made before memory grew is empty. */
  get array() {
    if (this.#heap === null) throw new Error("the memory was freed");
    return new this.#kind(this.#memory.buffer, this.#at, this.length);
  }
  /** Give the memory back. */
  free() {
    this.#heap?.give(this.#at, this.#bytes);
    this.#heap = null;
  }
}

/** Memory from a place on: blocks that were given back, by their places, and all above `top`. */
class Heap {
  constructor(memory, base) {
    [this.memory, this.top, this.blocks] = [memory, Math.ceil(base / ALIGNMENT) * ALIGNMENT, []];
  }
  static rounded(bytes) {
    return Math.max(1, Math.ceil(bytes / ALIGNMENT)) * ALIGNMENT;
  }
  take(bytes) {
    const size = Heap.rounded(bytes), n = this.blocks.findIndex((b) => b.size >= size);
    if (n >= 0) {
      const block = this.blocks[n], at = block.at;
      block.at += size;
      block.size -= size;
      if (block.size === 0) this.blocks.splice(n, 1);
      return at;
    }
    const at = this.top, missing = at + size - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / PAGE));
    this.top = at + size;
    return at;
  }
  give(at, bytes) {
    const size = Heap.rounded(bytes), found = this.blocks.findIndex((b) => b.at > at);
    const n = found < 0 ? this.blocks.length : found;
    this.blocks.splice(n, 0, { at, size });
    for (const k of [n, n - 1]) {
      const [low, high] = [this.blocks[k], this.blocks[k + 1]];
      if (low && high && low.at + low.size === high.at) {
        low.size += high.size;
        this.blocks.splice(k + 1, 1);
      }
    }
    const last = this.blocks.at(-1);
    if (last.at + last.size === this.top) {
      this.top = last.at;
      this.blocks.pop();
    }
  }
}

function sizesOf(name, about, given) {
  const known = new Set([...about.sizes, ...about.tensors.map((t) => t.name)]);
  for (const key of Object.keys(given)) if (!known.has(key)) throw new TypeError(`${name} has no argument ${key}`);
  return about.sizes.map((size) => {
    const value = given[size];
    if (!Number.isInteger(value) || value < 0 || value >= 2 ** 31) {
      throw new RangeError(`${name}: the size ${size} is a whole number below 2^31, not ${String(value)}`);
    }
    return value;
  });
}

/** What an argument is: its elements, or its place where these are in the module's memory already. */
function argumentOf(name, tensor, value, length, memory) {
  const array = value instanceof Allocation ? value.array : value;
  if (!(array instanceof tensor.kind)) {
    throw new TypeError(`${name}: ${tensor.name} is a ${tensor.kind.name} or an Allocation of one`);
  }
  if (array.length !== length) throw new RangeError(`${name}: ${tensor.name} has ${array.length} elements, not ${length}`);
  const here = array.buffer === memory.buffer;
  return { tensor, value, array, length, at: here ? array.byteOffset : null, here };
}

function checkDisjoint(name, places) {
  const end = (p) => p.at + p.length * p.tensor.kind.BYTES_PER_ELEMENT;
  for (const written of places.filter((p) => p.tensor.written)) {
    for (const other of places) {
      if (other !== written && other.at < end(written) && written.at < end(other)) {
        throw new Error(`${name}: ${written.tensor.name} overlaps ${other.tensor.name}`);
      }
    }
  }
}

function call(exports, heap, name, about, given) {
  const sizes = sizesOf(name, about, given), memory = exports.memory, taken = [];
  const take = (bytes) => {
    const at = heap.take(bytes);
    taken.push([at, bytes]);
    return at;
  };
  try {
    const places = about.tensors.filter((t) => !t.byValue).map((tensor) => {
      const length = tensor.length(...sizes), value = given[tensor.name];
      if (value === undefined && tensor.written && !tensor.read) return { tensor, value: null, array: null, length, at: null };
      return argumentOf(name, tensor, value, length, memory);
    });
    for (const p of places) p.at ??= take(p.length * p.tensor.kind.BYTES_PER_ELEMENT);
    const bytes = exports[`${name}_scratch`](...sizes) >>> 0;
    const scratch = about.scratch ? [take(bytes)] : [];
    checkDisjoint(name, places);
    const view = (p) => new p.tensor.kind(memory.buffer, p.at, p.length);
    for (const p of places) if (p.tensor.read && !p.here) view(p).set(p.array);
    const at = new Map(places.map((p) => [p.tensor, p.at]));
    const values = about.tensors.map((t) => (t.byValue ? numberOf(name, t, given[t.name]) : at.get(t)));
    const number = exports[name](...values, ...sizes, ...scratch);
    if (number !== 0) throw Object.assign(new Error(messageOf(exports, name, number)), { number });
    const results = {};
    for (const p of places.filter((p) => p.tensor.written)) {
      if (p.array === null) p.array = view(p).slice();
      else if (!p.here) p.array.set(view(p));
      results[p.tensor.name] = p.here ? view(p) : p.array;
    }
    return Object.keys(results).length === 1 ? Object.values(results)[0] : results;
  } finally {
    for (const [at, bytes] of taken) heap.give(at, bytes);
  }
}

function numberOf(name, tensor, value) {
  const wanted = tensor.kind === BigInt64Array || tensor.kind === BigUint64Array ? "bigint" : "number";
  const given = typeof value === "boolean" ? Number(value) : value;
  if (typeof given !== wanted) throw new TypeError(`${name}: ${tensor.name} is a ${wanted}`);
  return given;
}

function messageOf(exports, name, number) {
  const bytes = new Uint8Array(exports.memory.buffer), start = exports[`${name}_error`](number);
  return String.fromCharCode(...bytes.subarray(start, bytes.indexOf(0, start)));
}

async function bytesOf(source) {
  if (typeof Response !== "undefined" && source instanceof Response) return source.arrayBuffer();
  if (typeof source !== "string" && !(source instanceof URL)) return source;
  const url = new URL(source, import.meta.url);
  if (url.protocol === "file:" && typeof process !== "undefined") {
    const { readFile } = await import("node:fs/promises");
    return readFile(url);
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

/** Load the module, by default from the file beside this one, and return its operators. */
export async function load(source = new URL(FILE, import.meta.url)) {
  const content = await bytesOf(source);
  const module = content instanceof WebAssembly.Module ? content : await WebAssembly.compile(content);
  const { exports } = await WebAssembly.instantiate(module);
  const heap = new Heap(exports.memory, exports.__heap_base.value);
  const operators = Object.entries(OPERATORS).map(([name, about]) => [name, (given = {}) => call(exports, heap, name, about, given)]);
  const alloc = (kind, length) => new Allocation(exports.memory, heap, kind, length);
  return { ...Object.fromEntries(operators), memory: exports.memory, alloc };
}
