// The controls of the timeline, its legend, and saving it as a picture.

import { CanvasSurface } from "../timeline/surface.mjs";
import { SIZES, rowKey } from "../timeline/layout.mjs";
import { choice, el, save, toggle } from "./dom.mjs";
import { drawTimeline } from "../timeline/draw.mjs";
import { kindColours, theme } from "./colours.mjs";
import { KIND, KIND_LABELS } from "../data/action_kinds.mjs";
import { legendKinds, timelineSvg } from "../timeline/svg_export.mjs";

const PNG_SHARPNESS = 2;
const MAX_PIXELS = 16_000; // a side of a canvas

export function makeToolbar(view) {
  const { app } = view;
  const button = (text, label, onclick) =>
    el("button", { type: "button", "aria-label": label, title: label, onclick, text });
  const controls = el("div", { class: "controls" });
  const subjects = el("div", { class: "controls subjects" });
  const legend = el("div", { class: "legend", "aria-hidden": "true" });
  const fill = () => {
    controls.replaceChildren(...makeControls(app));
    subjects.replaceChildren(...makeSubjects(app));
    legend.replaceChildren(...makeLegend(app));
  };
  const changed = ["colour", "critical", "memory", "over", "open", "hidden", "theme", "systemDark"];
  app.listen((state, before) => {
    if (changed.some((name) => state[name] !== before[name])) keepFocus([controls, subjects], fill);
  });
  fill();
  return el(
    "div",
    { class: "toolbar" },
    controls,
    el(
      "div",
      { class: "buttons" },
      button("−", "zoom out", () => view.zoom(1 / 2)),
      button("+", "zoom in", () => view.zoom(2)),
      button("all", "show all", () => app.update({ from: null, to: null })),
      button("SVG", "save as SVG", () => save("timeline.svg", new Blob([svgOf(view)], { type: "image/svg+xml" }))),
      button("PNG", "save as PNG", () => pngOf(view).then((blob) => save("timeline.png", blob))),
    ),
    app.models.length > 1 ? subjects : null,
    legend,
  );
}

// Rebuilds the controls and keeps the focus.
function keepFocus(boxes, fill) {
  const inputs = () => boxes.flatMap((box) => [...box.querySelectorAll("input, select")]);
  const index = inputs().indexOf(document.activeElement);
  fill();
  if (index >= 0) inputs()[index]?.focus();
}

function makeControls(app) {
  const { state, models } = app;
  const devices = models.flatMap((model) =>
    model.tracks.flatMap((track, device) => (track.lanes.length ? [rowKey(model, device)] : [])),
  );
  const colours = [
    ["kind", "colour by kind"],
    ["microbatch", "colour by micro-batch"],
  ];
  if (app.data.pairs.length) colours.push(["error", "colour by prediction error"]);
  const controls = [
    choice("Colours", colours, state.colour, (colour) => app.update({ colour })),
    toggle("critical path", state.critical, (critical) => app.update({ critical })),
    toggle("memory", state.memory, (memory) => app.update({ memory })),
  ];
  if (devices.length) {
    controls.push(toggle("links", state.open.length === devices.length, (on) => app.update({ open: on ? devices : [] })));
  }
  if (app.data.pairs.length) controls.push(toggle("predicted over measured", state.over, (over) => app.update({ over })));
  return controls;
}

// Check boxes for the timelines. At least one stays shown.
function makeSubjects({ state, models, update }) {
  return models.map((model) => {
    const isShown = !state.hidden.includes(model.number);
    const others = state.hidden.filter((number) => number !== model.number);
    const box = toggle(model.name, isShown, (on) => update({ hidden: on ? others : [...others, model.number] }));
    if (isShown && state.hidden.length === models.length - 1) box.querySelector("input").disabled = true;
    return box;
  });
}

function makeLegend(app) {
  const { state, models } = app;
  const dark = document.documentElement.dataset.dark === "1";
  const entry = (colour, text) => {
    const mark = el("i");
    mark.style.background = colour;
    return el("span", {}, mark, text);
  };
  if (state.colour === "microbatch")
    return [el("span", { text: "from the first micro-batch (dark) to the last (light)" })];
  if (state.colour === "error")
    return [el("span", { text: "blue: shorter than predicted; orange: longer; full colour: half or twice the time" })];
  const colours = kindColours(theme(dark).kinds);
  const entries = legendKinds(models).map((kind) => entry(colours[kind][0], KIND_LABELS[kind]));
  if (models.some((model) => model.shades.some((shades) => shades.size > 1))) {
    entries.push(el("span", { text: "lighter: every second stage of a device" }));
  }
  if (state.open.length) {
    for (const kind of [KIND.SEND_F, KIND.SEND_B, KIND.SEND_S, KIND.SEND_P, KIND.REDUCE_GRAD]) {
      const exists = models.some(
        (model) => model.kind.includes(kind) || (kind === KIND.REDUCE_GRAD && model.kind.includes(KIND.REDUCE_TIE)),
      );
      if (exists) entries.push(entry(colours[kind][0], `${KIND_LABELS[kind]}${kind === KIND.REDUCE_GRAD ? "" : " sent"}`));
    }
  }
  if (state.memory) {
    const memory = models.some((model) => model.origin === "measured") ? "predicted memory" : "memory";
    entries.push(el("span", { text: `strip above a row: ${memory}; dashed line: its limit` }));
  }
  return entries;
}

export const svgOf = (view) => timelineSvg(view.scene());

export function pngOf(view) {
  const scene = view.scene();
  const height = SIZES.axis + scene.layout.height;
  const sharpness = Math.min(PNG_SHARPNESS, MAX_PIXELS / Math.max(height, scene.width));
  const canvas = el("canvas", { width: Math.ceil(scene.width * sharpness), height: Math.ceil(height * sharpness) });
  const context = canvas.getContext("2d");
  context.scale(sharpness, sharpness);
  context.fillStyle = theme(scene.dark).back;
  context.fillRect(0, 0, scene.width, height);
  drawTimeline(new CanvasSurface(context), { ...scene, height, scroll: 0, plain: true });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
