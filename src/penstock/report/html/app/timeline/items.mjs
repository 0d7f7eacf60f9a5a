// The compute actions and gaps of a device, in order of time.

import { gapEnd } from "../data/gaps.mjs";

export function deviceItems(model, device) {
  const items = Array.from(model.tracks[device].jobs, (action) => ({
    type: "action",
    action,
    at: model.start[action],
  }));
  for (let gap = model.gapBegins[device]; gap < model.gapBegins[device + 1]; gap++) {
    items.push({
      type: "gap",
      gap,
      at: model.gapStart[gap],
      seconds: (gapEnd(model, gap) - model.gapStart[gap]) * model.unit,
    });
  }
  items.sort((one, other) => one.at - other.at || (one.type === "gap") - (other.type === "gap"));
  return items.map((item) => ({ ...item, start: item.at * model.unit }));
}
