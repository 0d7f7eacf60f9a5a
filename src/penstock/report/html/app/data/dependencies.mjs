// What an action needed, and what needed it. The graph comes from program/dependencies/needs.py as a list of needs for
// each action; the users are the same edges the other way round.

import { runningSums } from "./timeline_model.mjs";

export function needsOf(model, action) {
  model.needBegins ??= runningSums(model.numNeeds);
  return [...model.needs.subarray(model.needBegins[action], model.needBegins[action + 1])];
}

export function usersOf(model, action) {
  model.users ??= reversed(model);
  const { begins, actions } = model.users;
  return [...actions.subarray(begins[action], begins[action + 1])];
}

function reversed({ numActions, numNeeds, needs }) {
  const counts = new Uint32Array(numActions);
  for (const needed of needs) counts[needed]++;
  const begins = runningSums(counts);
  const next = begins.slice();
  const actions = new Uint32Array(needs.length);
  let edge = 0;
  for (let action = 0; action < numActions; action++) {
    for (const end = edge + numNeeds[action]; edge < end; edge++) actions[next[needs[edge]]++] = action;
  }
  return { begins, actions };
}
