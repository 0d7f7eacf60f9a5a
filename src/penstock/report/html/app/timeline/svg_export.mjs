// Timelines as an SVG file: what "Save as SVG" gives, and what scripts/picture.mjs draws for the README.

import { kindColours, theme } from "../ui/colours.mjs";
import { drawTimeline } from "./draw.mjs";
import { KIND, KIND_WORDS } from "../data/action_kinds.mjs";
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

// The kinds of work that there are, each with its colour.
export function legendKinds(models) {
  const found = new Set();
  for (const model of models) for (const { jobs } of model.tracks) for (const job of jobs) found.add(model.kind[job]);
  return [KIND.F, KIND.R, KIND.B, KIND.I, KIND.W, KIND.STEP].filter((kind) => found.has(kind));
}

export function drawLegend(surface, scene, y) {
  const look = theme(scene.dark);
  if (scene.by !== "kind") return;
  const models = scene.layout.rows.filter((row) => row.type === "title").map((row) => row.model);
  const colours = kindColours(look.kinds);
  let x = scene.left;
  for (const kind of legendKinds(models)) {
    surface.rect(x, y, 12, 12, colours[kind][0]);
    surface.text(x + 17, y + 10, KIND_WORDS[kind], { colour: look.text, size: 12 });
    x += 34 + surface.width(KIND_WORDS[kind], { size: 12 });
  }
}
