// Formatting of numbers, as in penstock/units.py.

function threeDigits(value) {
  const size = Math.abs(value);
  if (size < 9.995) return value.toFixed(2);
  if (size < 99.95) return value.toFixed(1);
  return withCommas(value.toFixed(0));
}

export function withCommas(digits) {
  return String(digits).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

function scaled(value, units, last) {
  for (const [unit, size] of units) {
    if (Math.abs(value) >= size * 0.9995) return `${threeDigits(value / size)} ${unit}`;
  }
  return last(value);
}

export function showSeconds(value) {
  if (value === 0) return "0 s";
  return scaled(
    value,
    [
      ["s", 1],
      ["ms", 1e-3],
      ["us", 1e-6],
    ],
    (rest) => `${threeDigits(rest / 1e-9)} ns`,
  );
}

export function showBytes(value) {
  const units = [
    ["TB", 1e12],
    ["GB", 1e9],
    ["MB", 1e6],
    ["kB", 1e3],
  ];
  return scaled(value, units, (rest) => `${rest.toFixed(0)} B`);
}

export const showRate = (value) => (value === null ? "unlimited" : `${showBytes(value)}/s`);
export const showPercent = (fraction) => `${(100 * fraction).toFixed(1)} %`;
export const partOf = (part, whole) => (whole > 0 ? part / whole : 0);
export const counted = (number, noun, ending = "s") => `${withCommas(number)} ${noun}${number === 1 ? "" : ending}`;

// A sentence without line breaks between a number and its unit.
const BEFORE_UNIT = /(?<=\d) (?=%|(?:[mun]?s|[kMGT]?B|rows)(?:\/s)?(?!\w))/g;
export const withUnits = (text) => text.replace(BEFORE_UNIT, "\u00a0");

// Cuts the middle out of a long name, so that host and number remain at either end.
export function shortened(text, most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  if (most < 2) return letters.slice(0, most).join("");
  const head = Math.ceil((most - 1) / 2);
  return `${letters.slice(0, head).join("")}…${letters.slice(letters.length - (most - 1 - head)).join("")}`;
}
