// The model as a strip of units: where blocks begin, and what is said about them.

import { unitWords } from "./action_text.mjs";
import { showPercent, showSeconds } from "./format.mjs";

// Where each unit begins on the strip, and where the last ends: as wide as its work, but never nothing.
export function stripEdges(model, width) {
  const num = model.stages[model.stages.length - 1].stop;
  const work = Array.from({ length: num }, (_, unit) =>
    model.units ? model.units.forward[unit] + model.units.backward[unit] : 1,
  );
  const total = work.reduce((sum, value) => sum + value, 0);
  const least = total > 0 ? (0.15 * total) / num : 1;
  const wide = work.map((value) => value + least);
  const sum = wide.reduce((one, other) => one + other, 0);
  const edges = [0];
  for (const value of wide) edges.push(edges[edges.length - 1] + (value / sum) * width);
  return edges;
}

// Neighbouring stages on the same devices are one block for each member of the group, on each side.
export function stripBlocks(model, edges) {
  const found = [];
  for (const side of ["forward", "backward"]) {
    let begin = 0;
    model.stages.forEach((stage, number) => {
      const next = model.stages[number + 1];
      if (next && JSON.stringify(next[side]) === JSON.stringify(stage[side])) return;
      const first = model.stages[begin];
      stage[side].forEach(([device, share], member) => {
        found.push({
          side,
          device,
          share,
          member,
          members: stage[side].length,
          first: begin,
          last: number,
          x: edges[first.start],
          width: edges[stage.stop] - edges[first.start],
        });
      });
      begin = number + 1;
    });
  }
  return found;
}

export function blockWords(model, block) {
  const units =
    block.first === block.last
      ? unitWords(model, block.first)
      : `${unitWords(model, block.first)} to ${unitWords(model, block.last)}`;
  const share = block.share < 1 ? ` (${showPercent(block.share)} of the rows)` : "";
  const stages = block.first === block.last ? `stage ${block.first}` : `stages ${block.first} to ${block.last}`;
  return `${block.side} of ${stages} on ${block.device}${share}: ${units}${secondsWords(model, block)}`;
}

function secondsWords(model, block) {
  if (!model.units) return "";
  const [start, stop] = [model.stages[block.first].start, model.stages[block.last].stop];
  const seconds = model.units[block.side].slice(start, stop).reduce((sum, value) => sum + value, 0);
  return `; ${showSeconds(seconds)} a micro-batch on ${model.units.kind}`;
}

export const isMoved = ({ forward, backward }) => JSON.stringify(forward) !== JSON.stringify(backward);
