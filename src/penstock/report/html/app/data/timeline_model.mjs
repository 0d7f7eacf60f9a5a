// A timeline as the page works with it: arrays over actions, and rows of devices and links.

import { decodeArrays } from "./decode.mjs";
import { KIND, isJob, isReduction } from "./action_kinds.mjs";
import { sortedBy } from "./binary_search.mjs";

export const NONE = -1;

export function makeModel(subject, number) {
  const arrays = decodeArrays(subject.data, subject.arrays);
  const numActions = arrays.kind.length;
  const deviceOf = new Int32Array(numActions);
  const slot = new Int32Array(numActions); // place among the jobs, or among the transfers
  let jobs = 0;
  let transfers = 0;
  let total = 0;
  subject.devices.forEach((_, device) => deviceOf.fill(device, subject.begins[device], subject.begins[device + 1]));
  for (let action = 0; action < numActions; action++) {
    slot[action] = isJob(arrays.kind[action]) ? jobs++ : transfers++;
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

// A device's jobs in the order of time, and its lanes: a link to each other device, and reductions.
function makeTrack(model, device) {
  const [begin, end] = [model.begins[device], model.begins[device + 1]];
  const jobs = sortedBy(begin, end, model.start, (action) => isJob(model.kind[action]));
  const targets = new Set();
  for (let action = begin; action < end; action++) {
    if (!isJob(model.kind[action])) targets.add(peerOf(model, action));
  }
  const lanes = [...targets]
    .sort((one, other) => (one === NONE) - (other === NONE) || one - other)
    .map((target) => {
      const actions = sortedBy(
        begin,
        end,
        model.start,
        (action) => !isJob(model.kind[action]) && peerOf(model, action) === target,
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
export const causeOf = (model, action) => model.cause[action] - 1;
export const bytesOf = (model, action) => (isJob(model.kind[action]) ? 0 : model.bytes[model.slot[action]]);
export const secondsOf = (model, action) => (model.end[action] - model.start[action]) * model.unit;

// On a link the next transfer begins while the latency of the one before it still runs: the lowest free lane is taken.
export function subLanes(actions, start, end) {
  const lane = new Uint8Array(actions.length);
  const free = [];
  actions.forEach((action, place) => {
    let chosen = free.findIndex((time) => time <= start[action]);
    if (chosen < 0) chosen = Math.min(free.length, 3);
    free[chosen] = end[action];
    lane[place] = chosen;
  });
  return { lane, numLanes: Math.max(1, free.length) };
}

// 0 for the first stage of a device in model order, 1 for the next, then 0 again: the second is drawn lighter.
function makeShades(model) {
  return model.tracks.map(({ jobs }) => {
    const stages = [...new Set(Array.from(jobs, (job) => model.stage[job]))].sort((a, b) => a - b);
    return new Map(stages.map((stage, place) => [stage, place % 2]));
  });
}

// From the action that ends last, back from cause to cause. When a message of a run came is only known if it was waited
// for: where it was longer under way beside the job before than it was waited for, the path goes on with that job.
export function criticalPath(model) {
  const before = model.origin === "measured" ? jobsBefore(model) : null;
  const path = [];
  for (let action = model.last; action !== NONE; action = heldBy(model, action, before)) path.push(action);
  return path.reverse();
}

function heldBy(model, action, before) {
  const cause = causeOf(model, action);
  if (!before || cause === NONE || isJob(model.kind[cause]) || !isJob(model.kind[action])) return cause;
  const job = before[action];
  if (job === NONE) return cause;
  const beside = model.end[job] - model.start[cause];
  const waited = model.end[cause] - model.end[job];
  return beside > waited ? job : cause;
}

// For each action the last job before it on its device, in the order of the program.
function jobsBefore(model) {
  const before = new Int32Array(model.numActions).fill(NONE);
  model.tracks.forEach((_, device) => {
    let last = NONE;
    for (let action = model.begins[device]; action < model.begins[device + 1]; action++) {
      before[action] = last;
      if (isJob(model.kind[action])) last = action;
    }
  });
  return before;
}

// The seconds of each kind of job on a device.
export function loadOf(model, device) {
  const sums = new Float64Array(KIND.STEP + 1);
  for (const job of model.tracks[device].jobs) sums[model.kind[job]] += secondsOf(model, job);
  return sums;
}

// What goes over each link in an iteration, by the names of its ends: messages, and reductions around their rings.
export function trafficOf(model) {
  const found = new Map();
  const add = (source, target, bytes) => {
    const key = JSON.stringify([source, target]);
    found.set(key, (found.get(key) ?? 0) + bytes);
  };
  for (let action = 0; action < model.numActions; action++) {
    const target = isJob(model.kind[action]) ? NONE : peerOf(model, action);
    if (target !== NONE)
      add(model.devices[model.deviceOf[action]].name, model.devices[target].name, bytesOf(model, action));
  }
  for (const ring of model.rings) {
    ring.devices.forEach((name, place) => add(name, ring.devices[(place + 1) % ring.devices.length], ring.bytes));
  }
  return found;
}
