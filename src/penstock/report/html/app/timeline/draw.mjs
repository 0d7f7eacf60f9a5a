// Drawing of timelines, on a canvas and in an SVG file alike.

import { actionColours, inkOn, theme } from "../ui/colours.mjs";
import { isCrowded, memoryColumns, mixColumns, visibleRange } from "./detail.mjs";
import { showSeconds } from "../data/format.mjs";
import { NONE, microbatchOf } from "../data/timeline_model.mjs";
import { SIZES, rowsBetween } from "./layout.mjs";
import { drawLinks, drawPaths, xOf } from "./marks.mjs";
import { deviceLabels, titleLabels } from "./labels.mjs";
import { ticks } from "./scale.mjs";

const LABEL_PIXELS = 11;
const MAX_LABELS = 1200;

// scene: layout, view (seconds), total (of the axis), left (width of the names), width, height, scroll, dark, by (colours),
// partnerOf (for errors), path (the critical path by timeline number) or null, lit (the highlighted actions by timeline
// number) or null.
export function drawTimeline(surface, scene) {
  const look = theme(scene.dark);
  const rows = rowsBetween(scene.layout, scene.scroll, scene.scroll + scene.height - SIZES.axis);
  const plot = scene.width - scene.left;
  const painter = { surface, scene, look, plot, labels: 0 };
  drawAxis(painter);
  surface.clip(0, SIZES.axis, scene.width, scene.height - SIZES.axis, () => {
    for (const row of rows) drawRow(painter, row, SIZES.axis - scene.scroll);
    if (scene.path) drawPaths(painter, SIZES.axis - scene.scroll);
    if (scene.lit) drawLinks(painter, SIZES.axis - scene.scroll);
  });
}

function drawAxis({ surface, scene, look, plot }) {
  const marks = ticks(scene.view, plot, 74);
  for (const { x, label } of marks) {
    const at = Math.round(scene.left + x) + 0.5;
    surface.line(
      [
        [at, SIZES.axis - 6],
        [at, scene.height],
      ],
      look.line,
    );
    const room = scene.width - at;
    if (room > surface.width(label, { size: 11 }) + 6)
      surface.text(at + 4, SIZES.axis - 9, label, { colour: look.faint, size: 11 });
  }
  drawWindow(surface, scene, look);
  surface.line(
    [
      [scene.left, SIZES.axis - 0.5],
      [scene.width, SIZES.axis - 0.5],
    ],
    look.line,
  );
}

// The visible part of the axis, where it is not all.
function drawWindow(surface, { view, total, left, width }, look) {
  if (!(view.to - view.from < total * 0.999)) return;
  const scale = (width - left) / total;
  surface.rect(left, 0, width - left, 3, look.track);
  surface.rect(left + view.from * scale, 0, Math.max(3, (view.to - view.from) * scale), 3, look.faint);
}

function drawRow(painter, row, shift) {
  if (row.type === "title") drawTitle(painter, row, shift);
  else if (row.type === "phases") drawPhases(painter, row, shift);
  else if (row.type === "device") drawDevice(painter, row, shift);
  else drawLink(painter, row, shift);
}

function drawTitle(painter, row, shift) {
  const { surface, scene, look } = painter;
  const y = row.y + shift;
  surface.rect(0, y + 3, scene.width, row.height - 6, look.band);
  const style = { colour: look.text, size: 13, bold: true };
  painter.titles ??= titleLabels(surface, scene.layout, scene.width * 0.5, style);
  const name = painter.titles.get(row.model.number);
  surface.text(8, y + row.height / 2 + 4.5, name, style);
  const used = surface.width(name, style) + 22;
  const faint = { colour: look.faint, size: 12 };
  const room = scene.width - used - 8;
  const rest = row.rests.find((text) => surface.width(text, faint) <= room);
  if (rest) surface.text(used, y + row.height / 2 + 4.5, rest, faint);
}

function drawDevice(painter, row, shift) {
  const { surface, scene, look } = painter;
  const { model, device } = row;
  const [y, height] = [row.barY + shift, row.barHeight];
  const style = { colour: look.text, size: 12 };
  const name = deviceLabels(surface, model, scene.left - 30, style)[device];
  surface.text(20, y + height / 2 + 4, name, style);
  if (row.canOpen && !scene.plain) {
    const [x, middle] = [10, y + height / 2];
    const points = row.isOpen
      ? [
          [x - 4, middle - 2],
          [x + 4, middle - 2],
          [x, middle + 3],
        ]
      : [
          [x - 2, middle - 4],
          [x + 3, middle],
          [x - 2, middle + 4],
        ];
    surface.area(points, look.faint);
  }
  const end = Math.min(scene.width, xOf(scene, model.iteration));
  if (end > scene.left) surface.rect(scene.left, y, end - scene.left, height, look.track);
  drawEdges(painter, model, y - 1, height + 2);
  drawActions(painter, model, model.tracks[device].jobs, y, height, true);
  if (row.ghost && device < row.ghost.tracks.length) {
    drawActions(painter, row.ghost, row.ghost.tracks[device].jobs, row.ghostY + shift, SIZES.ghost, false);
  }
  if (row.memoryHeight) drawMemory(painter, row, row.memoryY + shift);
}

// Warm-up, steady phase and drain: bands above the rows, and lines through them.
function drawPhases({ surface, scene, look }, row, shift) {
  const { model } = row;
  const y = row.y + shift;
  const edges = [0, model.steady, model.drain, model.iteration];
  ["warm-up", "steady", "drain"].forEach((name, index) => {
    const left = Math.max(scene.left, xOf(scene, edges[index]));
    const right = Math.min(scene.width, xOf(scene, edges[index + 1]));
    if (!(right > left)) return;
    surface.rect(left, y + 2, right - left - 1, row.height - 4, index === 1 ? look.phaseSteady : look.phase);
    const style = { colour: look.faint, size: 10 };
    const room = right - left - 8;
    const text = [`${name} ${showSeconds(edges[index + 1] - edges[index])}`, name].find(
      (item) => surface.width(item, style) <= room,
    );
    if (text) surface.text((left + right) / 2, y + row.height / 2 + 3.5, text, { ...style, align: "center" });
  });
}

function drawEdges({ surface, scene, look }, model, y, height) {
  for (const time of [model.steady, model.drain]) {
    const x = xOf(scene, time);
    if (x > scene.left && x < scene.width)
      surface.line(
        [
          [x, y],
          [x, y + height],
        ],
        look.faint,
        1,
        [2, 2],
      );
  }
}

function drawActions(painter, model, order, y, height, labelled, lanes = null) {
  const { surface, scene, plot } = painter;
  const view = { from: scene.view.from / model.unit, to: scene.view.to / model.unit };
  const range = visibleRange(order, model.start, model.end, view.from, view.to);
  const lit = scene.lit?.get(model.number) ?? (scene.path ? scene.pathSets.get(model.number) : null);
  const colourOf = actionColours(model, { by: scene.by, dark: scene.dark, partner: scene.partnerOf(model) });
  const width = Math.floor(plot);
  const dims = Boolean(scene.lit || scene.path);
  const draw = (action, index, faint) => {
    const left = Math.max(scene.left, scene.left + ((model.start[action] - view.from) / (view.to - view.from)) * plot);
    const right = Math.min(scene.width, scene.left + ((model.end[action] - view.from) / (view.to - view.from)) * plot);
    if (!(right > scene.left) || left >= scene.width || model.end[action] === model.start[action]) return;
    const size = Math.max(0.5, right - left - (right - left > 3 ? 0.7 : 0));
    const top = y + (lanes ? lanes[index] * height : 0);
    const colour = colourOf(action);
    surface.rect(left, top, size, lanes ? height - 1 : height, colour);
    if (labelled && !faint && size >= LABEL_PIXELS && painter.labels < MAX_LABELS) {
      drawLabel(painter, model, action, left, size, y, height, colour);
    }
  };
  if (isCrowded(range[1] - range[0], plot)) {
    const paint = () =>
      surface.columns(scene.left, y, height - (lanes ? 1 : 0), mixColumns(order, range, model, view, width, colourOf));
    if (dims) surface.faded(painter.look.dim, paint);
    else paint();
  } else {
    const paint = () => {
      for (let index = range[0]; index < range[1]; index++) {
        if (!dims || !lit?.has(order[index])) draw(order[index], index, dims);
      }
    };
    if (dims) surface.faded(painter.look.dim, paint);
    else paint();
  }
  if (dims && lit) {
    for (let index = range[0]; index < range[1]; index++) if (lit.has(order[index])) draw(order[index], index, false);
  }
}

function drawLabel(painter, model, action, left, size, y, height, colour) {
  const number = microbatchOf(model, action);
  if (number < 0 || size < 5 + 6 * String(number).length) return;
  painter.labels++;
  painter.surface.text(left + size / 2, y + height / 2 + 3.5, String(number), {
    colour: inkOn(colour),
    size: 10,
    align: "center",
  });
}

function drawMemory({ surface, scene, look, plot }, row, y) {
  const { model, device } = row;
  const { limit, static: staticBytes } = model.devices[device];
  const track = model.tracks[device];
  const top = Math.max(limit ?? 0, track.peak);
  if (!(top > 0)) return;
  const height = row.memoryHeight - 1;
  const view = { from: scene.view.from / model.unit, to: scene.view.to / model.unit };
  const end = Math.min(scene.width, xOf(scene, model.iteration));
  if (!(end > scene.left)) return;
  const visible = { from: view.from, to: view.from + ((view.to - view.from) * Math.floor(end - scene.left)) / plot };
  const columns = memoryColumns(model, track, visible, Math.floor(end - scene.left), staticBytes);
  const level = (value) => y + height - (height - 1) * (value / top);
  const points = [[scene.left, y + height]];
  columns.forEach((value, column) => {
    const at = level(value);
    const last = points[points.length - 1];
    if (last[1] !== at) points.push([scene.left + column, last[1]], [scene.left + column, at]);
  });
  points.push([scene.left + columns.length, points[points.length - 1][1]], [scene.left + columns.length, y + height]);
  surface.area(points, look.memory);
  if (limit !== null) {
    const at = Math.round(level(limit)) + 0.5;
    surface.line(
      [
        [scene.left, at],
        [end, at],
      ],
      look.limit,
      1,
      [5, 3],
    );
  }
}

function drawLink(painter, row, shift) {
  const { surface, scene, look } = painter;
  const y = row.barY + shift;
  const style = { colour: look.faint, size: 10 };
  const { target } = row.lane;
  const text = target === NONE ? "all-reduce" : deviceLabels(surface, row.model, scene.left - 36, style, "→ ")[target];
  surface.text(30, y + row.barHeight / 2 + 3.5, text, style);
  const end = Math.min(scene.width, xOf(scene, row.model.iteration));
  if (end > scene.left) surface.rect(scene.left, y, end - scene.left, row.lane.numLanes * row.barHeight - 1, look.band);
  drawActions(painter, row.model, row.lane.actions, y, row.barHeight, false, row.lane.lane);
}
