// The scene: everything that the drawing of the timelines depends on.

import { gapDevice, gapEnd, partsOf } from "../data/gaps.mjs";
import { laneOf, xOf } from "./marks.mjs";
import { makeLayout, rowKey, rowOf } from "./layout.mjs";
import { needsOf, usersOf } from "../data/dependencies.mjs";
import { NONE } from "../data/timeline_model.mjs";
import { shownModels } from "../ui/app.mjs";

export function makeScene(app, { width, height, scroll, dark, hit = null }) {
  const { state } = app;
  const { models, ghosts } = shownModels(app);
  const layout = makeLayout(models, { open: new Set(state.open), ghosts, memory: state.memory });
  const scene = {
    layout,
    width,
    height,
    scroll,
    dark,
    view: app.view(),
    total: app.total,
    left: leftOf(width),
    by: state.colour,
    partnerOf: app.partnerOf,
    path: null,
    lit: null,
  };
  if (state.critical) {
    scene.path = new Map(models.map((model) => [model.number, model.path]));
    scene.pathSets = new Map(models.map((model) => [model.number, (model.pathSet ??= new Set(model.path))]));
  }
  return hit ? { ...scene, ...litBy(scene, hit) } : scene;
}

export const leftOf = (width) => (width < 560 ? 88 : 150);

// The highlighted actions for an action or a gap, and the lines between them.
export function litBy(scene, hit) {
  return hit.type === "gap" ? litByGap(scene, hit) : litByAction(scene, hit);
}

function litByAction(scene, { model, action }) {
  const [needs, users] = [needsOf(model, action), usersOf(model, action)];
  const links = [
    ...needs.map((other) => ({ model, from: other, to: action })),
    ...users.map((other) => ({ model, from: action, to: other })),
  ];
  const row = rowOf(scene.layout, model, action);
  return {
    lit: new Map([[model.number, new Set([action, ...needs, ...users])]]),
    links,
    frame: row
      ? frameOf(
          scene,
          model.start[action] * model.unit,
          model.end[action] * model.unit,
          row.barY + laneOf(row, action) * row.barHeight,
          row.barHeight,
        )
      : null,
  };
}

function litByGap(scene, { model, gap }) {
  const actions = partsOf(model, gap)
    .map((part) => part.action)
    .filter((action) => action !== NONE);
  const before = model.gapBefore[gap] - 1;
  const row = scene.layout.byKey.get(rowKey(model, gapDevice(model, gap)));
  const chain = before === NONE ? actions : [...actions, before];
  return {
    lit: new Map([[model.number, new Set(chain)]]),
    links: before === NONE ? [] : chain.slice(1).map((to, index) => ({ model, from: chain[index], to })),
    frame: row
      ? frameOf(scene, model.gapStart[gap] * model.unit, gapEnd(model, gap) * model.unit, row.barY, row.barHeight)
      : null,
  };
}

function frameOf(scene, from, to, y, height) {
  const x = xOf(scene, from);
  return { x: x - 1, y: y - 1, width: Math.max(3, xOf(scene, to) - x + 1), height: height + 2 };
}
