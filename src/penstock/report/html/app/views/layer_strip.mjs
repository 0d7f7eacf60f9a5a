// The model as a picture: units from left to right, forward above and backward below, coloured by device.

import { deviceColour, inkOn } from "../ui/colours.mjs";
import { el, svg } from "../ui/dom.mjs";
import { counted } from "../data/format.mjs";
import { shortNames } from "../data/short_names.mjs";
import { blockWords, isMoved, stripBlocks, stripEdges } from "../data/layer_strip.mjs";

const [TOP, BAND, BETWEEN] = [14, 34, 8];
const LETTER = 6.6; // pixels
const SHORT = 11; // letters
const LEAST_UNIT = 5; // smaller units are not marked

export function unitStrip(model, width) {
  const edges = stripEdges(model, width);
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${TOP + 2 * BAND + BETWEEN + 16}`,
    class: "strip",
    role: "img",
    "aria-label": `Units of ${model.model}, forward above and backward below, coloured by device`,
  });
  const blocks = stripBlocks(model, edges);
  picture.append(...blocks.map((block) => blockShape(model, block)));
  const last = edges.length - 1;
  const bottom = TOP + 2 * BAND + BETWEEN;
  if (width / last >= LEAST_UNIT) {
    for (let unit = 1; unit < last; unit++) {
      picture.append(svg("line", { x1: edges[unit], x2: edges[unit], y1: TOP, y2: TOP + BAND, class: "unit" }));
      picture.append(svg("line", { x1: edges[unit], x2: edges[unit], y1: bottom - BAND, y2: bottom, class: "unit" }));
    }
  }
  const moved = model.stages.filter(isMoved);
  for (const { start, stop } of moved) {
    const size = { x: edges[start], width: edges[stop] - edges[start] - 1, y: TOP + BAND + 2, height: BETWEEN - 4 };
    picture.append(svg("rect", { ...size, class: "moved" }));
  }
  const names = namesOf(model);
  picture.append(...blocks.flatMap((block) => blockLabel(model, block, names)));
  picture.append(svg("text", { x: 0, y: TOP - 4, class: "note", text: "forward" }));
  picture.append(svg("text", { x: 0, y: bottom + 13, class: "note", text: "backward" }));
  return el("figure", {}, picture, el("figcaption", { text: stripWords(model, moved.length) }));
}

const tallOf = (block) => BAND / block.members;
const topOf = (block) => (block.side === "forward" ? TOP : TOP + BAND + BETWEEN) + block.member * tallOf(block);
const colourOf = (model, block) => deviceColour(model.devices.findIndex((device) => device.name === block.device));

function blockShape(model, block) {
  const size = { width: Math.max(0.5, block.width - 1), height: Math.max(0.5, tallOf(block) - 0.5) };
  const title = svg("title", { text: blockWords(model, block) });
  return svg("rect", { x: block.x, y: topOf(block), ...size, fill: colourOf(model, block) }, title);
}

// For each device its name, or a short one that is still its own.
function namesOf(model) {
  const names = model.devices.map((device) => device.name);
  const short = shortNames(names, (text) => [...text].length <= SHORT);
  return new Map(names.map((name, place) => [name, short[place]]));
}

// The device's name, if it fits.
function blockLabel(model, block, names) {
  const most = Math.floor((block.width - 8) / LETTER);
  const text = names.get(block.device);
  if (tallOf(block) < 11 || [...text].length > most) return [];
  const place = { x: block.x + block.width / 2, y: topOf(block) + tallOf(block) / 2 + 4, "text-anchor": "middle" };
  const label = svg("text", { ...place, class: "block", text });
  label.style.fill = inkOn(colourOf(model, block));
  return [label];
}

function stripWords(model, numMoved) {
  const units = counted(model.stages[model.stages.length - 1].stop, "unit");
  const wide = model.units ? `, each unit about as wide as its work on ${model.units.kind}` : "";
  const moved = numMoved
    ? `In ${counted(numMoved, "stage")}, marked between, the backward runs elsewhere than the forward.`
    : "Every backward runs where its forward does.";
  return `${units} of ${model.model} in ${counted(model.stages.length, "stage")}${wide}. ${moved}`;
}
