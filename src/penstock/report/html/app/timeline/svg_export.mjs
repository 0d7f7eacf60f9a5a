// Timelines as an SVG file, for "Save as SVG" and for scripts/picture.mjs.

import { kindColours, theme } from "../ui/colours.mjs";
import { drawTimeline } from "./draw.mjs";
import { KIND, KIND_LABELS } from "../data/action_kinds.mjs";
import { SIZES } from "./layout.mjs";
import { SvgSurface } from "./surface.mjs";

const LEGEND = 30;

export function timelineSvg(scene) {
  const surface = new SvgSurface();
  const height = SIZES.axis + scene.layout.height;
  drawTimeline(surface, { ...scene, height, scroll: 0, plain: true });
  drawLegend(surface, scene, height + 6);
  return surface.file(scene.width, height + LEGEND, theme(scene.dark).back);
}

// The kinds of compute actions that occur.
export function legendKinds(models) {
  const kinds = new Set();
  for (const model of models) for (const { jobs } of model.tracks) for (const job of jobs) kinds.add(model.kind[job]);
  return [KIND.F, KIND.R, KIND.B, KIND.I, KIND.W, KIND.STEP].filter((kind) => kinds.has(kind));
}

export function drawLegend(surface, scene, y) {
  const look = theme(scene.dark);
  if (scene.by !== "kind") return;
  const models = scene.layout.rows.filter((row) => row.type === "title").map((row) => row.model);
  const colours = kindColours(look.kinds);
  let x = scene.left;
  for (const kind of legendKinds(models)) {
    surface.rect(x, y, 12, 12, colours[kind][0]);
    surface.text(x + 17, y + 10, KIND_LABELS[kind], { colour: look.text, size: 12 });
    x += 34 + surface.width(KIND_LABELS[kind], { size: 12 });
  }
}
