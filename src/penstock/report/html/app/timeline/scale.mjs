// The visible part of the time axis, and its ticks.

const SMALLEST = 1e-6; // of the whole

// Zooms by a factor (above 1: in) around a fixed time.
export function zoomed(view, factor, at, total) {
  const least = total * SMALLEST;
  const size = Math.min(total, Math.max(least, (view.to - view.from) / factor));
  const part = (at - view.from) / (view.to - view.from);
  return shifted({ from: at - part * size, to: at - part * size + size }, 0, total);
}

// Shifts by some seconds, but not beyond the ends.
export function shifted(view, seconds, total) {
  const size = Math.min(total, view.to - view.from);
  const from = Math.min(Math.max(0, view.from + seconds), total - size);
  return { from, to: from + size };
}

export const whole = (total) => ({ from: 0, to: total });

export const isWhole = (view, total) => view.from <= 0 && view.to >= total;

const UNITS = [
  ["s", 1],
  ["ms", 1e-3],
  ["us", 1e-6],
  ["ns", 1e-9],
];

// Ticks at round times, at least `gap` pixels apart. The label of the first has the unit.
export function ticks(view, width, gap) {
  const size = view.to - view.from;
  if (!(size > 0) || width <= 0) return [];
  const [unit, unitSeconds] = UNITS.find(([, seconds]) => view.to >= seconds) ?? UNITS[UNITS.length - 1];
  const step = roundStep((size / width) * gap);
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unitSeconds) - 1e-9));
  const marks = [];
  for (let number = Math.max(0, Math.ceil(view.from / step - 1e-9)); number * step <= view.to * (1 + 1e-12); number++) {
    const time = number * step;
    const label = (time / unitSeconds).toFixed(digits);
    marks.push({ time, x: ((time - view.from) / size) * width, label: marks.length ? label : `${label} ${unit}` });
  }
  return marks;
}

// The smallest of 1, 2, 5 times a power of ten that is at least `least`.
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least) + 1e-9);
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * (1 - 1e-9));
}
