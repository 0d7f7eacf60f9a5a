// The rows of timelines from top to bottom: for each timeline a title, its phases, its devices, and the links of
// expanded devices.

import { counted, showPercent, showSeconds } from "../data/format.mjs";
import { isCompute } from "../data/action_kinds.mjs";
import { peerOf } from "../data/timeline_model.mjs";

export const SIZES = { title: 30, phases: 17, memory: 19, ghost: 8, bar: 20, lane: 11, pad: 7, axis: 26, foot: 6 };

export const rowKey = (model, device) => `${model.number}.${device}`;

// `open`: keys of expanded devices. `ghosts`: by timeline number the timeline that is drawn thin above it.
export function makeLayout(models, { open = new Set(), ghosts = new Map(), memory = true } = {}) {
  const rows = [];
  let y = 0;
  for (const model of models) {
    const ghost = ghosts.get(model.number) ?? null;
    rows.push({ type: "title", model, y, height: SIZES.title, rests: titleRests(model, ghost) });
    y += SIZES.title;
    rows.push({ type: "phases", model, y, height: SIZES.phases });
    y += SIZES.phases;
    model.tracks.forEach((track, device) => {
      if (!track.jobs.length && !track.lanes.length) return;
      const memoryHeight = memory ? SIZES.memory : 0;
      const ghostHeight = ghost ? SIZES.ghost + 1 : 0;
      const barY = y + memoryHeight + ghostHeight + 1;
      const height = memoryHeight + ghostHeight + 1 + SIZES.bar + SIZES.pad;
      const key = rowKey(model, device);
      rows.push({
        type: "device",
        model,
        device,
        key,
        y,
        height,
        barY,
        barHeight: SIZES.bar,
        ghost,
        ghostY: y + memoryHeight,
        memoryY: y,
        memoryHeight,
        isOpen: open.has(key),
        canOpen: track.lanes.length > 0,
      });
      y += height;
      if (!open.has(key)) return;
      track.lanes.forEach((lane) => {
        const size = lane.numLanes * SIZES.lane;
        rows.push({
          type: "link",
          model,
          device,
          lane,
          key,
          y,
          height: size + 4,
          barY: y,
          barHeight: SIZES.lane,
        });
        y += size + 4;
      });
      y += SIZES.pad;
    });
  }
  const byKey = new Map();
  for (const row of rows) {
    if (row.type === "device") byKey.set(row.key, row);
    if (row.type === "link") byKey.set(`${row.key}.${row.lane.target}`, row);
  }
  return { rows, height: y + SIZES.foot, byKey };
}

// The row of an action; undefined where it is not shown.
export function rowOf(layout, model, action) {
  const key = rowKey(model, model.deviceOf[action]);
  return layout.byKey.get(isCompute(model.kind[action]) ? key : `${key}.${peerOf(model, action)}`);
}

// Texts beside the name, the longest first; the first that fits is drawn.
export function titleRests(model, ghost) {
  const beside = ghost ? `; thin above: predicted, ${showSeconds(ghost.iteration)}` : "";
  const short = `${showSeconds(model.iteration)}, bubble ${showPercent(model.figures.bubble)}`;
  const long = `${short}, ${counted(model.numMicrobatches, "micro-batch", "es")}, ${model.origin}`;
  return [`${long}${beside}`, long, short, showSeconds(model.iteration)];
}

// The row at a height, or null.
export function rowAt(layout, y) {
  let [low, high] = [0, layout.rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (layout.rows[middle].y + layout.rows[middle].height <= y) low = middle + 1;
    else high = middle;
  }
  const row = layout.rows[low];
  return row && row.y <= y ? row : null;
}

export function rowsBetween(layout, top, bottom) {
  return layout.rows.filter((row) => row.y + row.height > top && row.y < bottom);
}
