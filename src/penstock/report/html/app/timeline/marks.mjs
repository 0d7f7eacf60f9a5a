// Marks over the rows of a timeline: the critical path, and the dependencies of the highlighted action.

import { SIZES, rowOf } from "./layout.mjs";
import { lowerBound } from "../data/binary_search.mjs";

export const xOf = (scene, seconds) =>
  scene.left + ((seconds - scene.view.from) / (scene.view.to - scene.view.from)) * (scene.width - scene.left);

// The point at an edge of an action; null if its row is not shown.
export function pointOf(scene, model, action, edge) {
  const row = rowOf(scene.layout, model, action);
  if (!row) return null;
  const time = { start: model.start[action], end: model.end[action] }[edge] * model.unit;
  return [xOf(scene, time), row.barY + laneOf(row, action) * row.barHeight + row.barHeight / 2];
}

export function laneOf(row, action) {
  if (row.type !== "link") return 0;
  const { actions, lane } = row.lane;
  let index = lowerBound(actions, row.model.start, row.model.start[action]);
  while (actions[index] !== action) index++;
  return lane[index];
}

// The critical path as a line through its actions. Transfers on links that are not shown are jumps.
export function drawPaths({ surface, scene, look }, shift) {
  for (const row of scene.layout.rows) {
    if (row.type !== "title") continue;
    const points = [];
    for (const action of scene.path.get(row.model.number) ?? []) {
      for (const edge of ["start", "end"]) {
        const point = pointOf(scene, row.model, action, edge);
        // Below the bars, where it hides no numbers.
        if (point)
          points.push([
            clamped(point[0], scene),
            point[1] + rowOf(scene.layout, row.model, action).barHeight / 2 + 1 + shift,
          ]);
      }
    }
    surface.clip(scene.left, SIZES.axis, scene.width - scene.left, scene.height - SIZES.axis, () => {
      if (points.length > 1) surface.line(points, look.mark, 2);
    });
  }
}

// Lines between the selected action and its needs and users.
export function drawLinks({ surface, scene, look }, shift) {
  for (const { model, from, to } of scene.links ?? []) {
    const [start, end] = [pointOf(scene, model, from, "end"), pointOf(scene, model, to, "start")];
    if (start && end) {
      const points = [
        [clamped(start[0], scene), start[1] + shift],
        [clamped(end[0], scene), end[1] + shift],
      ];
      surface.clip(scene.left, SIZES.axis, scene.width - scene.left, scene.height - SIZES.axis, () =>
        surface.line(points, look.mark, 1.2),
      );
    }
  }
  if (scene.frame) {
    const { x, y, width, height } = scene.frame;
    surface.clip(scene.left, SIZES.axis, scene.width - scene.left, scene.height - SIZES.axis, () =>
      surface.frame(x, y + shift, width, height, look.mark, 2),
    );
  }
}

// Some browsers fail on coordinates far outside the canvas.
const clamped = (x, scene) => Math.min(Math.max(x, scene.left - 1000), scene.width + 1000);
