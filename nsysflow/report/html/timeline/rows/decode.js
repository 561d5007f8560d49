// How does a column in the page become a typed array? Base64, deflate, bytes by significance, deltas.

const ARRAYS = {
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f64: Float64Array,
};

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function blobOf(id) {
  return inflated(fromBase64(document.getElementById(id).textContent));
}

/** Numbers whose bytes are apart: the page has all first bytes, then all second ones... */
function unshuffled(bytes, Values) {
  const width = Values.BYTES_PER_ELEMENT;
  const count = bytes.length / width;
  if (width === 1) return bytes;
  if (width === 8) return unshuffledFloats(bytes, count);
  const values = new Values(count);
  for (let place = 0; place < width; place++) {
    const from = place * count;
    for (let i = 0; i < count; i++) values[i] |= bytes[from + i] << (8 * place);
  }
  return values;
}

function unshuffledFloats(bytes, count) {
  const whole = new Uint8Array(bytes.length);
  for (let place = 0; place < 8; place++) {
    const from = place * count;
    for (let i = 0, to = place; i < count; i++, to += 8) whole[to] = bytes[from + i];
  }
  return new Float64Array(whole.buffer);
}

/** `jumps` are the differences that are no 32-bit numbers, with their rows, where `values` has 0. */
function runningSum(values, jumps, Sums) {
  const sums = new Sums(values.length);
  let sum = 0;
  let next = 0;
  for (let i = 0; i < values.length; i++) {
    if (jumps[next]?.[0] === i) sum += jumps[next++][1];
    sums[i] = sum += values[i];
  }
  return sums;
}

/** The values of a column; `Sums` is the array of those that are written as differences. */
async function columnOf({ blob, type, delta, jumps = [] }, Sums) {
  const values = unshuffled(await blobOf(blob), ARRAYS[type]);
  return delta ? runningSum(values, jumps, Sums) : values;
}

/** A list of texts. */
async function textsOf(id) {
  return JSON.parse(new TextDecoder().decode(await blobOf(id)));
}
