// From the page's data to typed arrays. See html_packing.py and html_arrays.py for what is written.

const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };

export function decodeBytes(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

// `where` says of each array where it begins, how many numbers it has, and of which type.
export function decodeArrays(text, where) {
  const { buffer } = decodeBytes(text);
  const found = {};
  for (const [name, [offset, length, code]] of Object.entries(where)) {
    found[name] = new TYPES[code](buffer, offset, length);
  }
  return found;
}
