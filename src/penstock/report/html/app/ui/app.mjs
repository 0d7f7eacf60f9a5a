// The state that all parts of the page share: the timelines, and what is shown of them.

import { makeModel } from "../data/timeline_model.mjs";
import { decodeState, encodeState } from "./url_state.mjs";

export function makeApp(data, hash) {
  const models = data.subjects.map((subject, number) => ({
    ...makeModel(subject, number),
    kindNames: data.kinds,
    layers: data.layers[subject.layers] ?? null,
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
    // The length of the axis: the longest shown iteration.
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
  };
  return app;
}

// Drops references of an address to subjects, devices, actions and gaps that do not exist.
export function sane(state, models, total) {
  const exists = (key, limit) => {
    const [model, index] = key.split(".").map(Number);
    return model < models.length && index < limit(models[model]);
  };
  const valid = { ...state };
  if (valid.about >= models.length) valid.about = 0;
  valid.hidden = valid.hidden.filter((number) => number < models.length);
  if (valid.hidden.length >= models.length) valid.hidden = [];
  valid.open = valid.open.filter((key) => exists(key, (model) => model.devices.length));
  if (valid.pick !== null && !exists(valid.pick, (model) => model.numActions)) valid.pick = null;
  if (valid.gap !== null && !exists(valid.gap, (model) => model.gapCount)) valid.gap = null;
  if (valid.from !== null && valid.from >= total) valid.from = valid.to = null;
  if (valid.to !== null) valid.to = Math.min(valid.to, total);
  return valid;
}

// Keeps the view inside an axis that has become shorter.
function withinAxis(state, total) {
  if (state.from === null || state.to <= total) return state;
  return state.from < total ? { ...state, to: total } : { ...state, from: null, to: null };
}

// The timelines that are drawn, and the predicted ones that are drawn thin above measured ones.
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
