// What all parts of the page share: the timelines, and what is shown of them.

import { criticalPath, makeModel } from "../data/timeline_model.mjs";
import { decodeState, encodeState } from "./url_state.mjs";

export function makeApp(data, hash) {
  const models = data.subjects.map((subject, number) => ({
    ...makeModel(subject, number),
    kindNames: data.kinds,
    units: data.units[subject.units] ?? null,
  }));
  const longest = (some) => Math.max(...some.map((model) => model.iteration), 1e-9);
  const partners = new Map();
  const ghostOf = new Map();
  for (const { predicted, measured } of data.pairs) {
    partners.set(measured, models[predicted]);
    if (!partners.has(predicted)) partners.set(predicted, models[measured]);
    ghostOf.set(measured, models[predicted]);
  }
  const app = {
    data,
    models,
    partners,
    ghostOf,
    listeners: new Set(),
    state: sane(decodeState(hash), models, longest(models)),
    // The length of the axis: the longest of what is shown.
    get total() {
      return longest(models.filter((model) => !app.state.hidden.includes(model.number)));
    },
    partnerOf: (model) => partners.get(model.number) ?? null,
    listen(listener) {
      app.listeners.add(listener);
    },
    update(patch) {
      const before = app.state;
      app.state = { ...before, ...patch };
      if (patch.hidden) app.state = withinAxis(app.state, app.total);
      for (const listener of app.listeners) listener(app.state, before);
    },
    view: () => (app.state.from === null ? { from: 0, to: app.total } : { from: app.state.from, to: app.state.to }),
    path(model) {
      model.path ??= criticalPath(model);
      return model.path;
    },
  };
  return app;
}

// An address may name what is not there.
export function sane(state, models, total) {
  const exists = (key, limit) => {
    const [model, place] = key.split(".").map(Number);
    return model < models.length && place < limit(models[model]);
  };
  const found = { ...state };
  if (found.about >= models.length) found.about = 0;
  found.hidden = found.hidden.filter((number) => number < models.length);
  if (found.hidden.length >= models.length) found.hidden = [];
  found.open = found.open.filter((key) => exists(key, (model) => model.devices.length));
  if (found.pick !== null && !exists(found.pick, (model) => model.numActions)) found.pick = null;
  if (found.gap !== null && !exists(found.gap, (model) => model.gapCount)) found.gap = null;
  if (found.from !== null && found.from >= total) found.from = found.to = null;
  if (found.to !== null) found.to = Math.min(found.to, total);
  return found;
}

// Where the axis has become shorter, what is seen of it stays inside.
function withinAxis(state, total) {
  if (state.from === null || state.to <= total) return state;
  return state.from < total ? { ...state, to: total } : { ...state, from: null, to: null };
}

// What is drawn, and which predicted timelines are drawn thin above measured ones.
export function shownModels(app) {
  const { state } = app;
  const visible = app.models.filter((model) => !state.hidden.includes(model.number));
  const ghosts = new Map();
  if (state.over) {
    for (const model of visible) {
      const ghost = app.ghostOf.get(model.number);
      if (ghost && visible.includes(ghost)) ghosts.set(model.number, ghost);
    }
  }
  const thin = new Set(ghosts.values());
  return { models: visible.filter((model) => !thin.has(model)), ghosts };
}

export const addressOf = (state) => encodeState(state);
