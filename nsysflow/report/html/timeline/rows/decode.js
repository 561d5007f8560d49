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

/** Put the bytes of each number side by side again: the page has all first bytes, then all second... */
function unshuffled(bytes, width) {
  if (width === 1) return bytes;
  const count = bytes.length / width;
  const whole = new Uint8Array(bytes.length);
  for (let place = 0; place < width; place++) {
    const from = place * count;
    for (let i = 0, to = place; i < count; i++, to += width) whole[to] = bytes[from + i];
  }
  return whole;
}

function runningSum(values, Sums) {
  const sums = new Sums(values.length);
  let sum = 0;
  for (let i = 0; i < values.length; i++) sums[i] = sum += values[i];
  return sums;
}

/** The values of a column; `Sums` is the array of those that are written as differences. */
async function columnOf({ blob, type, delta }, Sums) {
  const Values = ARRAYS[type];
  const values = new Values(unshuffled(await blobOf(blob), Values.BYTES_PER_ELEMENT).buffer);
  return delta ? runningSum(values, Sums) : values;
}

/** A list of texts. */
async function textsOf(id) {
  return JSON.parse(new TextDecoder().decode(await blobOf(id)));
}
