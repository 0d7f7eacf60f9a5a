// The page's data as typed arrays, as report/html/payload/packing.py packs them.

const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };

export function decodeBytes(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

// `layout`: for each array its offset, its length and its type.
export function decodeArrays(text, layout) {
  const { buffer } = decodeBytes(text);
  const arrays = {};
  for (const [name, [offset, length, code]] of Object.entries(layout)) {
    arrays[name] = new TYPES[code](buffer, offset, length);
  }
  return arrays;
}
