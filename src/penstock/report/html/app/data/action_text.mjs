// What is said about an action: a title, and lines of a name and a value.

import { KIND, KIND_WORDS, isJob, isReduction } from "./action_kinds.mjs";
import { actionName, deviceName } from "./gaps.mjs";
import { counted, showBytes, showPercent, showRate, showSeconds } from "./format.mjs";
import { NONE, bytesOf, microbatchOf, peerOf, secondsOf } from "./timeline_model.mjs";
import { needsOf, usersOf } from "./dependencies.mjs";

const MOST_NAMED = 4;

export function actionTitle(model, action) {
  const kind = model.kind[action];
  const [stage, microbatch] = [model.stage[action], microbatchOf(model, action)];
  const device = deviceName(model, model.deviceOf[action]);
  const of = kind === KIND.REDUCE_TIE ? "" : ` of stage ${stage}`;
  const batch = microbatch === NONE ? "" : `, micro-batch ${microbatch}`;
  const peer = isJob(kind) ? NONE : peerOf(model, action);
  const where = peer === NONE ? ` on ${device}` : ` from ${device} to ${deviceName(model, peer)}`;
  return `${actionName(model, action)}: ${KIND_WORDS[kind]}${of}${batch}${where}`;
}

export function actionLines(model, action, partner) {
  const kind = model.kind[action];
  const seconds = secondsOf(model, action);
  const predicted = model.origin === "measured" ? ", predicted" : "";
  const lines = [
    ["time", `${showSeconds(model.start[action] * model.unit)} to ${showSeconds(model.end[action] * model.unit)}`],
    partner ? errorLine(model, action, partner) : ["takes", takesWords(model, action)],
  ];
  if (isJob(kind)) {
    const { limit } = model.devices[model.deviceOf[action]];
    const used = model.memoryDuring[model.slot[action]];
    lines.push([
      "memory",
      (limit ? `${showBytes(used)} of ${showBytes(limit)} (${showPercent(used / limit)})` : showBytes(used)) + predicted,
    ]);
    const units = unitWords(model, model.stage[action]);
    if (units) lines.push(["units", units]);
  } else {
    const bytes = bytesOf(model, action);
    const rate =
      seconds > 0 && !isReduction(kind) && model.origin !== "measured" ? `, ${showRate(bytes / seconds)}` : "";
    lines.push(["moves", `${showBytes(bytes)}${rate}${predicted}`]);
  }
  for (const [name, found] of [
    ["needed", needsOf(model, action)],
    ["needed by", usersOf(model, action)],
  ]) {
    if (found.length) lines.push([name, listed(model, found)]);
  }
  return lines;
}

// Of a message that was measured it is only known when its receiver had it; of one that nobody waited for, not even that.
function takesWords(model, action) {
  const seconds = secondsOf(model, action);
  if (isJob(model.kind[action]) || model.origin !== "measured") return showSeconds(seconds);
  return seconds > 0 ? `at most ${showSeconds(seconds)}` : "not known (nothing waited for it)";
}

function errorLine(model, action, partner) {
  const [measured, predicted] = model.origin === "measured" ? [model, partner] : [partner, model];
  const [taken, foreseen] = [secondsOf(measured, action), secondsOf(predicted, action)];
  const error =
    foreseen > 0 && isJob(model.kind[action])
      ? ` (${taken >= foreseen ? "+" : "−"}${showPercent(Math.abs(taken / foreseen - 1))})`
      : "";
  return ["measured", `${takesWords(measured, action)}, predicted ${showSeconds(foreseen)}${error}`];
}

function listed(model, actions) {
  const named = actions.slice(0, MOST_NAMED).map((action) => {
    const peer = isJob(model.kind[action]) ? NONE : peerOf(model, action);
    const arrow = peer === NONE ? "" : ` → ${deviceName(model, peer)}`;
    return `${actionName(model, action)} (${deviceName(model, model.deviceOf[action])}${arrow})`;
  });
  if (actions.length > MOST_NAMED) named.push(`${actions.length - MOST_NAMED} more`);
  return named.join(", ");
}

// The names of a stage's first and last unit, and how many it has.
export function unitWords(model, stage) {
  const found = model.stages[stage];
  if (!found) return "";
  const count = counted(found.stop - found.start, "unit");
  if (!model.units) return `${count}, from number ${found.start}`;
  const [first, last] = [model.units.names[found.start], model.units.names[found.stop - 1]];
  return found.stop - found.start === 1 ? first : `${first} … ${last} (${count})`;
}
