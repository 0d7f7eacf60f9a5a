// What an action needed, and what needed it: the messages and jobs directly before and after it.

import { KIND, isReduction } from "./action_kinds.mjs";
import { NONE, causeOf, microbatchOf, peerOf } from "./timeline_model.mjs";

const key = (kind, stage, microbatch) => `${kind} ${stage} ${microbatch}`;

// All actions by what they are. It takes a moment for large programs, so it is made when it is first asked for.
export function makeIndex(model) {
  const index = new Map();
  for (let action = 0; action < model.numActions; action++) {
    const name = key(model.kind[action], model.stage[action], microbatchOf(model, action));
    const list = index.get(name);
    if (list) list.push(action);
    else index.set(name, [action]);
  }
  return index;
}

export function indexOf(model) {
  model.index ??= makeIndex(model);
  return model.index;
}

function find(model, kinds, stage, microbatch, accept) {
  const index = indexOf(model);
  return kinds.flatMap((kind) => (index.get(key(kind, stage, microbatch)) ?? []).filter(accept));
}

export function needsOf(model, action) {
  const [kind, stage, microbatch] = [model.kind[action], model.stage[action], microbatchOf(model, action)];
  const device = model.deviceOf[action];
  const here = (other) => model.deviceOf[other] === device;
  const coming = (other) => peerOf(model, other) === device;
  const jobs = (kinds, number, at = microbatch) => find(model, kinds, number, at, here);
  const sent = (kinds, number, at = microbatch) => find(model, kinds, number, at, coming);
  // What a job on the same device makes is needed only where both have some rows of the micro-batch in common.
  const made = (kinds, number, side, own) =>
    rowsMeet(rowsOf(model, number, side, device), rowsOf(model, stage, own, device)) ? jobs(kinds, number) : [];
  const { F, R, I, W, B, STEP, SEND_F, SEND_B, SEND_S, SEND_P, REDUCE_GRAD, REDUCE_TIE } = KIND;
  switch (kind) {
    case F:
      return [...made([F], stage - 1, "forward", "forward"), ...sent([SEND_F], stage - 1)];
    case R:
      return [...made([F], stage, "forward", "backward"), ...sent([SEND_S], stage)];
    case I:
    case B: {
      const kept = jobs([R], stage);
      const forward = kept.length ? kept : [...made([F], stage, "forward", "backward"), ...sent([SEND_S], stage)];
      return [...made([I, B], stage + 1, "backward", "backward"), ...sent([SEND_B], stage + 1), ...forward];
    }
    case W:
      return jobs([I], stage);
    case SEND_F:
    case SEND_S:
      return jobs([F], stage);
    case SEND_B:
      return jobs([I, B], stage);
    case SEND_P:
      return jobs([STEP], stage);
    case REDUCE_GRAD:
      return lastJobs(model, device, stage);
    case REDUCE_TIE:
      return lastJobs(model, device, null);
    case STEP:
      return [
        ...jobs([REDUCE_GRAD], stage, NONE),
        ...indexValues(model, REDUCE_TIE).filter((other) => here(other) && sharesTie(model, action, other)),
        ...lastJobs(model, device, stage),
      ];
    default:
      return [];
  }
}

export function usersOf(model, action) {
  const [kind, stage, microbatch] = [model.kind[action], model.stage[action], microbatchOf(model, action)];
  const { F, R, I, W, B, STEP, SEND_F, SEND_B, SEND_S, SEND_P, REDUCE_GRAD, REDUCE_TIE } = KIND;
  // Whoever may need it; those that say so themselves do.
  const candidates =
    {
      [F]: [
        [[F, SEND_F], 1],
        [[F, R, I, B, SEND_F, SEND_S], 0],
      ],
      [R]: [[[I, B], 0]],
      [I]: [
        [[I, B], -1],
        [[W, SEND_B], 0],
      ],
      [B]: [
        [[I, B], -1],
        [[SEND_B], 0],
      ],
      [SEND_F]: [[[F], 1]],
      [SEND_B]: [[[I, B], -1]],
      [SEND_S]: [[[R, I, B], 0]],
    }[kind] ?? [];
  const any = () => true;
  const found = candidates.flatMap(([kinds, step]) => find(model, kinds, stage + step, microbatch, any));
  if (kind === W || kind === B || isReduction(kind)) {
    found.push(...indexValues(model, REDUCE_GRAD), ...indexValues(model, REDUCE_TIE), ...indexValues(model, STEP));
  }
  if (kind === STEP) found.push(...indexValues(model, SEND_P));
  return found.filter((other) => other !== action && needsOf(model, other).includes(action));
}

// The part of every micro-batch's rows that a device has of a stage: [from, to] of 1; null if it has none.
export function rowsOf(model, stage, side, device) {
  let from = 0;
  for (const [name, share] of model.stages[stage]?.[side] ?? []) {
    if (name === model.devices[device].name) return [from, from + share];
    from += share;
  }
  return null;
}

const rowsMeet = (one, other) =>
  one !== null && other !== null && Math.min(one[1], other[1]) - Math.max(one[0], other[0]) > 1e-5;

// Whether a stage's step waits for the sum of shared parameters; where the file does not say whose they are, the
// cause of the step does.
function sharesTie(model, step, reduction) {
  if (!model.ties) return causeOf(model, step) === reduction;
  return model.ties[model.stage[reduction]]?.includes(model.stage[step]) ?? false;
}

function indexValues(model, kind) {
  model.onceActions ??= new Map();
  if (!model.onceActions.has(kind)) {
    const found = [];
    for (let action = 0; action < model.numActions; action++) if (model.kind[action] === kind) found.push(action);
    model.onceActions.set(kind, found);
  }
  return model.onceActions.get(kind);
}

// The job that completes the gradients of a stage on a device (of all its stages, if none is named).
function lastJobs(model, device, stage) {
  const { jobs } = model.tracks[device];
  for (let place = jobs.length - 1; place >= 0; place--) {
    const kind = model.kind[jobs[place]];
    const fits = stage === null || model.stage[jobs[place]] === stage;
    if (fits && (kind === KIND.W || kind === KIND.B)) return [jobs[place]];
  }
  return [];
}
