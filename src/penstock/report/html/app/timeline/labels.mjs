// Names on a timeline, shortened to the available width.

import { shortNames } from "../data/short_names.mjs";

// The names of a timeline's devices with a prefix. They are cached for each size.
export function deviceLabels(surface, model, room, style, prefix = "") {
  model.labels ??= new Map();
  const key = [surface.kind, room, style.size, prefix].join(" ");
  if (!model.labels.has(key)) {
    const names = model.devices.map((device) => device.name);
    const fits = (text) => surface.width(prefix + text, style) <= room;
    model.labels.set(
      key,
      shortNames(names, fits).map((name) => prefix + name),
    );
  }
  return model.labels.get(key);
}

// The names of the shown timelines, by their numbers.
export function titleLabels(surface, layout, room, style) {
  const models = layout.rows.filter((row) => row.type === "title").map((row) => row.model);
  const names = shortNames(
    models.map((model) => model.name),
    (text) => surface.width(text, style) <= room,
  );
  return new Map(models.map((model, index) => [model.number, names[index]]));
}
