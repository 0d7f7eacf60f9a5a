// Keyboard control of the timeline: arrows move, + and - zoom, Enter selects an action, Tab the next action or gap, Esc
// clears the selection. With a selection, up and down go to other devices.

import { actionAt, neighbour } from "./hits.mjs";
import { gapDevice } from "../data/gaps.mjs";
import { rowKey } from "../timeline/layout.mjs";
import { NONE } from "../data/timeline_model.mjs";
import { picked } from "./pick.mjs";
import { present } from "../ui/focus.mjs";

const STEP = 0.1;

export function listenToKeys(view) {
  const { app, canvas, frame } = view;

  const actions = {
    ArrowLeft: () => view.pan(-STEP),
    ArrowRight: () => view.pan(STEP),
    ArrowUp: () => (picked(app) ? toRow(-1) : frame.scrollBy(0, -40)),
    ArrowDown: () => (picked(app) ? toRow(1) : frame.scrollBy(0, 40)),
    "+": () => view.zoom(1.5),
    "=": () => view.zoom(1.5),
    "-": () => view.zoom(1 / 1.5),
    0: () => app.update({ from: null, to: null }),
    Home: () => app.update({ from: null, to: null }),
    c: () => app.update({ critical: !app.state.critical }),
  };

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const chosen = picked(app);
    if (event.key === "Tab" && chosen) {
      const next = neighbour(chosen, event.shiftKey ? -1 : 1);
      if (!next) return; // at the end of a row Tab leaves the timeline
      event.preventDefault();
      choose(next);
    } else if (event.key === "Escape" && chosen) {
      event.preventDefault();
      view.pick(null);
      view.point(null);
    } else if (event.key === "Enter" && !chosen) {
      event.preventDefault();
      enter();
    } else if (Object.hasOwn(actions, event.key)) {
      event.preventDefault();
      actions[event.key]();
    }
  });

  // An action in the middle of the view, on the first visible device.
  function enter() {
    const scene = view.scene({ hit: null });
    const row = scene.layout.rows.find((item) => item.type === "device" && item.barY >= scene.scroll);
    if (row) toJob(row, (scene.view.from + scene.view.to) / 2, scene.view.to - scene.view.from);
  }

  function toRow(step) {
    const { model, action, gap, type } = picked(app);
    const device = type === "gap" ? gapDevice(model, gap) : model.deviceOf[action];
    const rows = view.scene({ hit: null }).layout.rows.filter((row) => row.type === "device");
    const index = rows.findIndex((row) => row.key === rowKey(model, device));
    const row = rows[index + step];
    const time = (type === "gap" ? model.gapStart[gap] : model.start[action]) * model.unit;
    if (row) toJob(row, time, app.total);
  }

  function toJob(row, time, slack) {
    const { model } = row;
    const action = actionAt(model, model.tracks[row.device].jobs, time / model.unit, slack / model.unit);
    if (action !== NONE) choose({ type: "action", model, action });
  }

  function choose(hit) {
    view.pick(hit);
    present(view, hit);
  }
}
