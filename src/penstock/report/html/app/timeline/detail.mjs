// How much detail is drawn: single actions where they can be told apart, and where they cannot, for every column of
// pixels the mix of what is in it, as a photograph would show it.

import { lowerBound } from "../data/binary_search.mjs";
import { parse } from "../ui/colours.mjs";

const LEAST_PIXELS = 3; // actions that are smaller on average are not drawn one by one

// The places in `order` (sorted by start) of what can be seen between two times in ticks.
export function visibleRange(order, start, end, from, to) {
  const first = lowerBound(order, start, from);
  let low = first;
  // What began before may still last; devices do one thing at a time, links a few.
  for (let place = first - 1; place >= Math.max(0, first - 4); place--) if (end[order[place]] > from) low = place;
  return [low, lowerBound(order, start, to)];
}

export const isCrowded = (count, width) => count > 64 && count * LEAST_PIXELS > width;

// Red, green, blue and cover (0 to 1) of every column; `view` in ticks.
export function mixColumns(order, range, model, view, width, colourOf) {
  const sums = new Float32Array(4 * width);
  const scale = width / (view.to - view.from);
  const known = new Map();
  for (let place = range[0]; place < range[1]; place++) {
    const action = order[place];
    const left = Math.max(0, (model.start[action] - view.from) * scale);
    const right = Math.min(width, (model.end[action] - view.from) * scale);
    if (!(right > left)) continue;
    const colour = colourOf(action);
    let parts = known.get(colour);
    if (!parts) known.set(colour, (parts = parse(colour)));
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

// The memory of a device for every column of pixels: the most that was held in it. `view` in ticks.
// Before its first job a device holds `held`, if that is known.
export function memoryColumns(model, track, view, width, held) {
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
  if (first === 0) fill(0, Math.ceil((model.start[jobs[0]] - view.from) * scale) - 1, held ?? 0);
  for (let place = first; place < high; place++) {
    const job = jobs[place];
    const next = place + 1 < jobs.length ? model.start[jobs[place + 1]] : model.total;
    const end = column(model.end[job]);
    fill(column(model.start[job]), end, model.memoryDuring[model.slot[job]]);
    fill(end, column(next), model.memoryAfter[model.slot[job]]);
  }
  return most;
}
