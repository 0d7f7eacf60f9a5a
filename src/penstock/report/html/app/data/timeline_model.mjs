// A timeline on the page: arrays over actions, and tracks of devices and links.

import { decodeArrays } from "./decode.mjs";
import { KIND, isCompute, isReduction } from "./action_kinds.mjs";
import { sortedBy } from "./binary_search.mjs";

export const NONE = -1;

export function makeModel(subject, number) {
  const arrays = decodeArrays(subject.data, subject.arrays);
  const numActions = arrays.kind.length;
  const deviceOf = new Int32Array(numActions);
  const slot = new Int32Array(numActions); // index among the compute actions, or among the transfers
  let jobs = 0;
  let transfers = 0;
  let total = 0;
  subject.devices.forEach((_, device) => deviceOf.fill(device, subject.begins[device], subject.begins[device + 1]));
  for (let action = 0; action < numActions; action++) {
    slot[action] = isCompute(arrays.kind[action]) ? jobs++ : transfers++;
    if (arrays.end[action] > total) total = arrays.end[action];
  }
  const model = { ...subject, ...arrays, number, numActions, deviceOf, slot, total };
  model.gapCount = arrays.gapStart.length;
  model.partBegins = runningSums(arrays.gapParts);
  model.tracks = subject.devices.map((_, device) => makeTrack(model, device));
  model.shades = makeShades(model);
  return model;
}

export function runningSums(counts) {
  const sums = new Int32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) sums[i + 1] = sums[i] + counts[i];
  return sums;
}

// The compute actions of a device in order of time, and its lanes: one for each link, one for reductions.
function makeTrack(model, device) {
  const [begin, end] = [model.begins[device], model.begins[device + 1]];
  const jobs = sortedBy(begin, end, model.start, (action) => isCompute(model.kind[action]));
  const targets = new Set();
  for (let action = begin; action < end; action++) {
    if (!isCompute(model.kind[action])) targets.add(peerOf(model, action));
  }
  const lanes = [...targets]
    .sort((one, other) => (one === NONE) - (other === NONE) || one - other)
    .map((target) => {
      const actions = sortedBy(
        begin,
        end,
        model.start,
        (action) => !isCompute(model.kind[action]) && peerOf(model, action) === target,
      );
      return { target, actions, ...subLanes(actions, model.start, model.end) };
    });
  let peak = 0;
  for (const job of jobs)
    peak = Math.max(peak, model.memoryDuring[model.slot[job]], model.memoryAfter[model.slot[job]]);
  return { jobs, lanes, peak };
}

// The device at the other end of a send; NONE for reductions.
export function peerOf(model, action) {
  return isReduction(model.kind[action]) ? NONE : model.peer[model.slot[action]] - 1;
}

export const microbatchOf = (model, action) => model.microbatch[action] - 1;
export const bytesOf = (model, action) => (isCompute(model.kind[action]) ? 0 : model.bytes[model.slot[action]]);
export const secondsOf = (model, action) => (model.end[action] - model.start[action]) * model.unit;

// On a link the next transfer begins during the latency of the one before it. Each takes the lowest free lane.
export function subLanes(actions, start, end) {
  const lane = new Uint8Array(actions.length);
  const free = [];
  actions.forEach((action, index) => {
    let chosen = free.findIndex((time) => time <= start[action]);
    if (chosen < 0) chosen = Math.min(free.length, 3);
    free[chosen] = end[action];
    lane[index] = chosen;
  });
  return { lane, numLanes: Math.max(1, free.length) };
}

// Shades 0 and 1 in turn for the stages of a device in model order; 1 is drawn lighter.
function makeShades(model) {
  return model.tracks.map(({ jobs }) => {
    const stages = [...new Set(Array.from(jobs, (job) => model.stage[job]))].sort((a, b) => a - b);
    return new Map(stages.map((stage, index) => [stage, index % 2]));
  });
}

// The seconds of each kind of compute action on a device.
export function loadOf(model, device) {
  const sums = new Float64Array(KIND.STEP + 1);
  for (const job of model.tracks[device].jobs) sums[model.kind[job]] += secondsOf(model, job);
  return sums;
}

// The bytes on each link in an iteration, by the names of its ends: messages, and the rings of reductions.
export function trafficOf(model) {
  const traffic = new Map();
  const add = (source, target, bytes) => {
    const key = JSON.stringify([source, target]);
    traffic.set(key, (traffic.get(key) ?? 0) + bytes);
  };
  for (let action = 0; action < model.numActions; action++) {
    const target = isCompute(model.kind[action]) ? NONE : peerOf(model, action);
    if (target !== NONE)
      add(model.devices[model.deviceOf[action]].name, model.devices[target].name, bytesOf(model, action));
  }
  for (const ring of model.rings) {
    ring.devices.forEach((name, index) => add(name, ring.devices[(index + 1) % ring.devices.length], ring.bytes));
  }
  return traffic;
}
