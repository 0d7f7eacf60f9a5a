// The level of detail: single actions where they are wide enough, otherwise the mean colour of every column of pixels.

import { lowerBound } from "../data/binary_search.mjs";
import { parse } from "../ui/colours.mjs";

const MIN_PIXELS = 3; // actions that are narrower on average are not drawn one by one

// The range of `order` (sorted by start) that is visible between two times in ticks.
export function visibleRange(order, start, end, from, to) {
  const first = lowerBound(order, start, from);
  let low = first;
  // Earlier actions may still run: one on a device, a few on a link.
  for (let index = first - 1; index >= Math.max(0, first - 4); index--) if (end[order[index]] > from) low = index;
  return [low, lowerBound(order, start, to)];
}

export const isCrowded = (count, width) => count > 64 && count * MIN_PIXELS > width;

// Red, green, blue and cover (0 to 1) of every column; `view` in ticks.
export function mixColumns(order, range, model, view, width, colourOf) {
  const sums = new Float32Array(4 * width);
  const scale = width / (view.to - view.from);
  const parsed = new Map();
  for (let index = range[0]; index < range[1]; index++) {
    const action = order[index];
    const left = Math.max(0, (model.start[action] - view.from) * scale);
    const right = Math.min(width, (model.end[action] - view.from) * scale);
    if (!(right > left)) continue;
    const colour = colourOf(action);
    let parts = parsed.get(colour);
    if (!parts) parsed.set(colour, (parts = parse(colour)));
    for (let column = Math.floor(left); column < right; column++) {
      const cover = Math.min(right, column + 1) - Math.max(left, column);
      const at = 4 * column;
      sums[at] += parts[0] * cover;
      sums[at + 1] += parts[1] * cover;
      sums[at + 2] += parts[2] * cover;
      sums[at + 3] += cover;
    }
  }
  const pixels = new Uint8ClampedArray(4 * width);
  for (let at = 0; at < sums.length; at += 4) {
    const cover = sums[at + 3];
    if (!cover) continue;
    pixels[at] = sums[at] / cover;
    pixels[at + 1] = sums[at + 1] / cover;
    pixels[at + 2] = sums[at + 2] / cover;
    pixels[at + 3] = 255 * Math.min(1, cover);
  }
  return pixels;
}

// The peak memory of a device in every column of pixels; `view` in ticks. Before its first action a device holds
// `staticBytes`, if that is known.
export function memoryColumns(model, track, view, width, staticBytes) {
  const most = new Float32Array(width);
  const { jobs } = track;
  if (!jobs.length || width <= 0) return most;
  const scale = width / (view.to - view.from);
  const column = (time) => Math.floor((time - view.from) * scale);
  const fill = (from, to, value) => {
    const last = Math.min(width - 1, to);
    for (let at = Math.max(0, from); at <= last; at++) if (value > most[at]) most[at] = value;
  };
  const [low, high] = visibleRange(jobs, model.start, model.end, view.from, view.to);
  const first = Math.max(0, low - 1);
  if (first === 0) fill(0, Math.ceil((model.start[jobs[0]] - view.from) * scale) - 1, staticBytes ?? 0);
  for (let index = first; index < high; index++) {
    const job = jobs[index];
    const next = index + 1 < jobs.length ? model.start[jobs[index + 1]] : model.total;
    const end = column(model.end[job]);
    fill(column(model.start[job]), end, model.memoryDuring[model.slot[job]]);
    fill(end, column(next), model.memoryAfter[model.slot[job]]);
  }
  return most;
}
