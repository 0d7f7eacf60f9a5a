// The plan section: the model as a strip of layers, and the load of each device.

import { kindColours, theme } from "../ui/colours.mjs";
import { el, fillToWidth, section } from "../ui/dom.mjs";
import { counted, partOf, showBytes, showPercent, showSeconds } from "../data/format.mjs";
import { KIND, KIND_LABELS } from "../data/action_kinds.mjs";
import { loadOf } from "../data/timeline_model.mjs";
import { layerStrip } from "./layer_strip.mjs";

const STRIP_WIDTH = 1000;
const MAX_LOADS = 64;

export function planView(app, isDark) {
  const box = el("div");
  const fill = () => {
    const model = app.models[app.state.about];
    box.replaceChildren(layerStrip(model, box.clientWidth || STRIP_WIDTH), loadBars(model, isDark()), memoryBars(model) ?? "");
  };
  app.listen((state, before) => {
    if (["about", "theme", "systemDark"].some((name) => state[name] !== before[name])) fill();
  });
  fillToWidth(box, fill);
  return section("plan", "Plan", box);
}

// For each device that is nearly full a bar of what its memory holds at the peak, and what one GB more would gain.
function memoryBars({ tight, iteration }) {
  if (!tight) return null;
  const list = el("div", { class: "loads", role: "list" });
  for (const { name, limit, action, parts } of tight.devices.slice(0, MAX_LOADS)) {
    const bar = el("div", { class: "load bytes" });
    const labels = parts.map(([text, size]) => `${text} ${showBytes(size)}`);
    parts.forEach(([, size], index) => {
      const part = el("i", { title: labels[index] });
      part.style.width = `${100 * partOf(size, limit)}%`;
      part.style.opacity = 1 - index / (parts.length + 1);
      bar.append(part);
    });
    list.append(
      el(
        "div",
        { class: "load-row", role: "listitem", "aria-label": `${name} during ${action}: ${labels.join(", ")}` },
        el("span", { class: "load-name", title: name, text: name }),
        bar,
        el("span", { class: "load-figures" }, el("small", { text: labels.slice(0, 2).join(", ") })),
      ),
    );
  }
  const more = tight.moreSeconds;
  const gain = more === null ? null : 1 - partOf(more, iteration);
  const text =
    more === null
      ? null
      : gain < 0.0005
        ? "With 1 GB more on each of them, the same stages would not be faster."
        : `With 1 GB more on each of them, the same stages would take ${showSeconds(more)}, ${showPercent(gain)} less.`;
  return el(
    "div",
    {},
    el("h3", { text: "Devices whose memory is nearly full, and what it holds at the peak" }),
    list,
    text && el("p", { class: "hint", text }),
  );
}

// A bar for each device: its busy time by kind of action, and its idle time.
function loadBars(model, dark) {
  const colours = kindColours(theme(dark).kinds);
  const list = el("div", { class: "loads", role: "list" });
  const peak = model.origin === "measured" ? "predicted peak memory" : "peak memory";
  const working = model.tracks.filter((track) => track.jobs.length).length;
  model.tracks.forEach((track, device) => {
    if (!track.jobs.length || list.childElementCount >= MAX_LOADS) return;
    const { name, limit } = model.devices[device];
    const load = loadOf(model, device);
    const busy = load.reduce((sum, value) => sum + value, 0);
    const bar = el("div", { class: "load" });
    const labels = [];
    load.forEach((seconds, kind) => {
      if (!(seconds > 0)) return;
      const part = el("i", { title: `${KIND_LABELS[kind]} ${showSeconds(seconds)}` });
      part.style.width = `${100 * partOf(seconds, model.iteration)}%`;
      part.style.background = colours[kind][0];
      bar.append(part);
      labels.push(`${KIND_LABELS[kind]} ${showSeconds(seconds)}`);
    });
    const memory = limit ? `${showBytes(track.peak)} of ${showBytes(limit)}` : showBytes(track.peak);
    list.append(
      el(
        "div",
        { class: "load-row", role: "listitem", "aria-label": `${name}: ${labels.join(", ")}; ${peak} ${memory}` },
        el("span", { class: "load-name", title: name, text: name }),
        bar,
        el(
          "span",
          { class: "load-figures" },
          `${showPercent(partOf(busy, model.iteration))} busy`,
          el("small", { text: memory }),
        ),
      ),
    );
  });
  const kinds = [KIND.F, KIND.R, KIND.B, KIND.I, KIND.W, KIND.STEP].filter((kind) =>
    model.tracks.some((_, device) => loadOf(model, device)[kind] > 0),
  );
  const legend = el(
    "div",
    { class: "legend", "aria-hidden": "true" },
    ...kinds.map((kind) => {
      const mark = el("i");
      mark.style.background = colours[kind][0];
      return el("span", {}, mark, KIND_LABELS[kind]);
    }),
  );
  return el(
    "div",
    {},
    el("h3", { text: `Load of each device over the iteration, and ${peak}` }),
    legend,
    list,
    working > MAX_LOADS
      ? el("p", { class: "hint", text: `${counted(working - MAX_LOADS, "more device")} are not shown here.` })
      : null,
  );
}
