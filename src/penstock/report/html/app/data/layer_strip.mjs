// The model as a strip of layers: edges, blocks, and their text.

import { layerText } from "./action_text.mjs";
import { showPercent, showSeconds } from "./format.mjs";

// The left edge of each layer on the strip and the right edge of the last. The width follows the work, with a minimum.
export function stripEdges(model, width) {
  const num = model.stages[model.stages.length - 1].stop;
  const work = Array.from({ length: num }, (_, layer) =>
    model.layers ? model.layers.forward[layer] + model.layers.backward[layer] : 1,
  );
  const total = work.reduce((sum, value) => sum + value, 0);
  const least = total > 0 ? (0.15 * total) / num : 1;
  const wide = work.map((value) => value + least);
  const sum = wide.reduce((one, other) => one + other, 0);
  const edges = [0];
  for (const value of wide) edges.push(edges[edges.length - 1] + (value / sum) * width);
  return edges;
}

// Adjacent stages on the same devices form one block for each replica, for the forward and for the backward.
export function stripBlocks(model, edges) {
  const blocks = [];
  for (const side of ["forward", "backward"]) {
    let begin = 0;
    model.stages.forEach((stage, number) => {
      const next = model.stages[number + 1];
      if (next && JSON.stringify(next[side]) === JSON.stringify(stage[side])) return;
      const first = model.stages[begin];
      stage[side].forEach(([device, share], replica) => {
        blocks.push({
          side,
          device,
          share,
          replica,
          numReplicas: stage[side].length,
          first: begin,
          last: number,
          x: edges[first.start],
          width: edges[stage.stop] - edges[first.start],
        });
      });
      begin = number + 1;
    });
  }
  return blocks;
}

export function blockText(model, block) {
  const layers =
    block.first === block.last
      ? layerText(model, block.first)
      : `${layerText(model, block.first)} to ${layerText(model, block.last)}`;
  const share = block.share < 1 ? ` (${showPercent(block.share)} of the rows)` : "";
  const stages = block.first === block.last ? `stage ${block.first}` : `stages ${block.first} to ${block.last}`;
  return `${block.side} of ${stages} on ${block.device}${share}: ${layers}${secondsText(model, block)}`;
}

function secondsText(model, block) {
  if (!model.layers) return "";
  const [start, stop] = [model.stages[block.first].start, model.stages[block.last].stop];
  const seconds = model.layers[block.side].slice(start, stop).reduce((sum, value) => sum + value, 0);
  return `; ${showSeconds(seconds)} per micro-batch on ${model.layers.kind}`;
}

export const hasRemoteBackward = ({ forward, backward }) => JSON.stringify(forward) !== JSON.stringify(backward);
