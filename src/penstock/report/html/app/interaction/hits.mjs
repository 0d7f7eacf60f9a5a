// Hit testing: the action or gap under the pointer.

import { gapAt, gapDevice } from "../data/gaps.mjs";
import { isCompute } from "../data/action_kinds.mjs";
import { NONE, peerOf } from "../data/timeline_model.mjs";
import { upperBound } from "../data/binary_search.mjs";

const NEAR_PIXELS = 3;

// `time` and `slack` in ticks: the action nearest to the time within the slack.
export function actionAt(model, order, time, slack, accept = () => true) {
  let best = NONE;
  let bestDistance = slack;
  const after = upperBound(order, model.start, time + slack);
  for (let index = after - 1; index >= Math.max(0, after - 8); index--) {
    const action = order[index];
    if (!accept(index)) continue;
    const distance = Math.max(0, model.start[action] - time, time - model.end[action]);
    if (distance < bestDistance || (distance === 0 && best === NONE)) [best, bestDistance] = [action, distance];
    if (distance === 0) break;
  }
  return best;
}

// A position in a row: `seconds` on the axis, `y` on the layout, `perPixel` in seconds.
export function hitInRow(row, seconds, y, perPixel) {
  if (!row || (row.type !== "device" && row.type !== "link")) return null;
  const { model } = row;
  const [time, slack] = [seconds / model.unit, (NEAR_PIXELS * perPixel) / model.unit];
  if (row.type === "link") {
    const lane = Math.floor((y - row.barY) / row.barHeight);
    const action = actionAt(model, row.lane.actions, time, slack, (index) => row.lane.lane[index] === lane);
    return action === NONE ? null : { type: "action", model, action };
  }
  const { jobs } = model.tracks[row.device];
  const inside = actionAt(model, jobs, time, 0);
  if (inside !== NONE) return { type: "action", model, action: inside };
  const gap = gapAt(model, row.device, time);
  if (gap !== NONE) return { type: "gap", model, gap };
  const near = actionAt(model, jobs, time, slack);
  return near === NONE ? null : { type: "action", model, action: near };
}

// The next (step 1) or previous (step -1) action or gap on the same row; null at its ends.
export function neighbour({ type, model, action, gap }, step) {
  if (type === "gap") {
    const device = gapDevice(model, gap);
    const { jobs } = model.tracks[device];
    const before = model.gapBefore[gap] - 1;
    const index = before === NONE ? jobs.length : jobs.indexOf(before);
    const other = jobs[step > 0 ? index : index - 1];
    return other === undefined ? null : { type: "action", model, action: other };
  }
  const device = model.deviceOf[action];
  const order = isCompute(model.kind[action])
    ? model.tracks[device].jobs
    : model.tracks[device].lanes.find((lane) => lane.target === peerOf(model, action)).actions;
  const other = order[order.indexOf(action) + step];
  if (isCompute(model.kind[action])) {
    const time = step > 0 ? model.end[action] : model.start[action] - 1;
    const between = gapAt(model, device, time);
    if (between !== NONE) return { type: "gap", model, gap: between };
  }
  return other === undefined ? null : { type: "action", model, action: other };
}
