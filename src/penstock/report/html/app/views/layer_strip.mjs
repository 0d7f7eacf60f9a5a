// The model as a picture: layers from left to right, forward above and backward below, coloured by device.

import { deviceColour, inkOn } from "../ui/colours.mjs";
import { el, svg } from "../ui/dom.mjs";
import { counted } from "../data/format.mjs";
import { shortNames } from "../data/short_names.mjs";
import { blockText, hasRemoteBackward, stripBlocks, stripEdges } from "../data/layer_strip.mjs";

const [TOP, BAND, BETWEEN] = [14, 34, 8];
const LETTER = 6.6; // pixels
const SHORT = 11; // letters
const MIN_LAYER_WIDTH = 5; // narrower layers are not marked

export function layerStrip(model, width) {
  const edges = stripEdges(model, width);
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${TOP + 2 * BAND + BETWEEN + 16}`,
    class: "strip",
    role: "img",
    "aria-label": `Layers of ${model.model}, forward above and backward below, coloured by device`,
  });
  const blocks = stripBlocks(model, edges);
  picture.append(...blocks.map((block) => blockShape(model, block)));
  const last = edges.length - 1;
  const bottom = TOP + 2 * BAND + BETWEEN;
  if (width / last >= MIN_LAYER_WIDTH) {
    for (let layer = 1; layer < last; layer++) {
      picture.append(svg("line", { x1: edges[layer], x2: edges[layer], y1: TOP, y2: TOP + BAND, class: "layer" }));
      picture.append(svg("line", { x1: edges[layer], x2: edges[layer], y1: bottom - BAND, y2: bottom, class: "layer" }));
    }
  }
  const remote = model.stages.filter(hasRemoteBackward);
  for (const { start, stop } of remote) {
    const size = { x: edges[start], width: edges[stop] - edges[start] - 1, y: TOP + BAND + 2, height: BETWEEN - 4 };
    picture.append(svg("rect", { ...size, class: "remote" }));
  }
  const names = namesOf(model);
  picture.append(...blocks.flatMap((block) => blockLabel(model, block, names)));
  picture.append(svg("text", { x: 0, y: TOP - 4, class: "note", text: "forward" }));
  picture.append(svg("text", { x: 0, y: bottom + 13, class: "note", text: "backward" }));
  return el("figure", {}, picture, el("figcaption", { text: stripCaption(model, remote.length) }));
}

const tallOf = (block) => BAND / block.numReplicas;
const topOf = (block) => (block.side === "forward" ? TOP : TOP + BAND + BETWEEN) + block.replica * tallOf(block);
const colourOf = (model, block) => deviceColour(model.devices.findIndex((device) => device.name === block.device));

function blockShape(model, block) {
  const size = { width: Math.max(0.5, block.width - 1), height: Math.max(0.5, tallOf(block) - 0.5) };
  const title = svg("title", { text: blockText(model, block) });
  return svg("rect", { x: block.x, y: topOf(block), ...size, fill: colourOf(model, block) }, title);
}

// For each device its name, or a short distinct one.
function namesOf(model) {
  const names = model.devices.map((device) => device.name);
  const short = shortNames(names, (text) => [...text].length <= SHORT);
  return new Map(names.map((name, index) => [name, short[index]]));
}

// The device's name, if it fits.
function blockLabel(model, block, names) {
  const most = Math.floor((block.width - 8) / LETTER);
  const text = names.get(block.device);
  if (tallOf(block) < 11 || [...text].length > most) return [];
  const position = { x: block.x + block.width / 2, y: topOf(block) + tallOf(block) / 2 + 4, "text-anchor": "middle" };
  const label = svg("text", { ...position, class: "block", text });
  label.style.fill = inkOn(colourOf(model, block));
  return [label];
}

function stripCaption(model, numRemote) {
  const layers = counted(model.stages[model.stages.length - 1].stop, "layer");
  const wide = model.layers ? `, each layer about as wide as its time on ${model.layers.kind}` : "";
  const remote = numRemote
    ? `${counted(numRemote, "stage")} with a remote backward, marked between forward and backward.`
    : "Every backward runs on the device of its forward.";
  return `${layers} of ${model.model} in ${counted(model.stages.length, "stage")}${wide}. ${remote}`;
}
