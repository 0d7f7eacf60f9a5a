// Names on the drawing of a timeline, as much of them as there is room for.

import { shortNames } from "../data/short_names.mjs";

// The names of a timeline's devices, with something before each. They are worked out once for each size.
export function deviceLabels(surface, model, room, style, before = "") {
  model.labels ??= new Map();
  const key = [surface.kind, room, style.size, before].join(" ");
  if (!model.labels.has(key)) {
    const names = model.devices.map((device) => device.name);
    const fits = (text) => surface.width(before + text, style) <= room;
    model.labels.set(
      key,
      shortNames(names, fits).map((name) => before + name),
    );
  }
  return model.labels.get(key);
}

// The names of the timelines that are shown, by their numbers.
export function titleLabels(surface, layout, room, style) {
  const models = layout.rows.filter((row) => row.type === "title").map((row) => row.model);
  const names = shortNames(
    models.map((model) => model.name),
    (text) => surface.width(text, style) <= room,
  );
  return new Map(models.map((model, place) => [model.number, names[place]]));
}
