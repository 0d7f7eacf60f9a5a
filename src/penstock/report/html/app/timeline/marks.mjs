// What is drawn over the rows of a timeline: the critical path, and what belongs to what is pointed at.

import { SIZES, rowOf } from "./layout.mjs";
import { lowerBound } from "../data/binary_search.mjs";

export const xOf = (scene, seconds) =>
  scene.left + ((seconds - scene.view.from) / (scene.view.to - scene.view.from)) * (scene.width - scene.left);

// The middle of an action on the picture; null if its row is not there.
export function placeOf(scene, model, action, edge) {
  const row = rowOf(scene.layout, model, action);
  if (!row) return null;
  const time = { start: model.start[action], end: model.end[action] }[edge] * model.unit;
  return [xOf(scene, time), row.barY + laneOf(row, action) * row.barHeight + row.barHeight / 2];
}

export function laneOf(row, action) {
  if (row.type !== "link") return 0;
  const { actions, lane } = row.lane;
  let place = lowerBound(actions, row.model.start, row.model.start[action]);
  while (actions[place] !== action) place++;
  return lane[place];
}

// The critical path as a line from job to job; what happens on links that are not shown is a step in it.
export function drawPaths({ surface, scene, look }, shift) {
  for (const row of scene.layout.rows) {
    if (row.type !== "title") continue;
    const points = [];
    for (const action of scene.path.get(row.model.number) ?? []) {
      for (const edge of ["start", "end"]) {
        const point = placeOf(scene, row.model, action, edge);
        // Under the bars, where it hides no number.
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

// Lines to what the chosen action needed, and to what needed it.
export function drawLinks({ surface, scene, look }, shift) {
  for (const { model, from, to } of scene.links ?? []) {
    const [start, end] = [placeOf(scene, model, from, "end"), placeOf(scene, model, to, "start")];
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

// Far outside the picture some browsers lose their way.
const clamped = (x, scene) => Math.min(Math.max(x, scene.left - 1000), scene.width + 1000);
