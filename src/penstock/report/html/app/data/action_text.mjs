// The tooltip of an action: a title, and lines with a name and a value.

import { KIND, KIND_LABELS, isCompute, isReduction } from "./action_kinds.mjs";
import { actionName, deviceName } from "./gaps.mjs";
import { counted, showBytes, showPercent, showRate, showSeconds } from "./format.mjs";
import { NONE, bytesOf, microbatchOf, peerOf, secondsOf } from "./timeline_model.mjs";
import { needsOf, usersOf } from "./dependencies.mjs";

const MAX_NAMED = 4;

export function actionTitle(model, action) {
  const kind = model.kind[action];
  const [stage, microbatch] = [model.stage[action], microbatchOf(model, action)];
  const device = deviceName(model, model.deviceOf[action]);
  const of = kind === KIND.REDUCE_TIE ? "" : ` of stage ${stage}`;
  const batch = microbatch === NONE ? "" : `, micro-batch ${microbatch}`;
  const peer = isCompute(kind) ? NONE : peerOf(model, action);
  const where = peer === NONE ? ` on ${device}` : ` from ${device} to ${deviceName(model, peer)}`;
  return `${actionName(model, action)}: ${KIND_LABELS[kind]}${of}${batch}${where}`;
}

export function actionLines(model, action, partner) {
  const kind = model.kind[action];
  const seconds = secondsOf(model, action);
  const predicted = model.origin === "measured" ? ", predicted" : "";
  const lines = [
    ["time", `${showSeconds(model.start[action] * model.unit)} to ${showSeconds(model.end[action] * model.unit)}`],
    partner ? errorLine(model, action, partner) : ["duration", durationText(model, action)],
  ];
  if (isCompute(kind)) {
    const { limit } = model.devices[model.deviceOf[action]];
    const used = model.memoryDuring[model.slot[action]];
    lines.push([
      "memory",
      (limit ? `${showBytes(used)} of ${showBytes(limit)} (${showPercent(used / limit)})` : showBytes(used)) + predicted,
    ]);
    const layers = layerText(model, model.stage[action]);
    if (layers) lines.push(["layers", layers]);
  } else {
    const bytes = bytesOf(model, action);
    const rate =
      seconds > 0 && !isReduction(kind) && model.origin !== "measured" ? `, ${showRate(bytes / seconds)}` : "";
    lines.push(["payload", `${showBytes(bytes)}${rate}${predicted}`]);
  }
  for (const [name, others] of [
    ["needed", needsOf(model, action)],
    ["needed by", usersOf(model, action)],
  ]) {
    if (others.length) lines.push([name, actionList(model, others)]);
  }
  return lines;
}

// The end of a measured message is when its receiver had it, and is unknown if no device waited for it.
function durationText(model, action) {
  const seconds = secondsOf(model, action);
  if (isCompute(model.kind[action]) || model.origin !== "measured") return showSeconds(seconds);
  return seconds > 0 ? `at most ${showSeconds(seconds)}` : "unknown (no device waited for it)";
}

function errorLine(model, action, partner) {
  const [measured, predicted] = model.origin === "measured" ? [model, partner] : [partner, model];
  const [measuredSeconds, predictedSeconds] = [secondsOf(measured, action), secondsOf(predicted, action)];
  const error =
    predictedSeconds > 0 && isCompute(model.kind[action])
      ? ` (${measuredSeconds >= predictedSeconds ? "+" : "−"}${showPercent(Math.abs(measuredSeconds / predictedSeconds - 1))})`
      : "";
  return ["measured", `${durationText(measured, action)}, predicted ${showSeconds(predictedSeconds)}${error}`];
}

function actionList(model, actions) {
  const named = actions.slice(0, MAX_NAMED).map((action) => {
    const peer = isCompute(model.kind[action]) ? NONE : peerOf(model, action);
    const arrow = peer === NONE ? "" : ` → ${deviceName(model, peer)}`;
    return `${actionName(model, action)} (${deviceName(model, model.deviceOf[action])}${arrow})`;
  });
  if (actions.length > MAX_NAMED) named.push(`${actions.length - MAX_NAMED} more`);
  return named.join(", ");
}

// The names of the first and the last layer of a stage, and their number.
export function layerText(model, stage) {
  if (!model.stages[stage]) return "";
  const { start, stop } = model.stages[stage];
  const count = counted(stop - start, "layer");
  if (!model.layers) return `${count}, from layer ${start}`;
  const [first, last] = [model.layers.names[start], model.layers.names[stop - 1]];
  return stop - start === 1 ? first : `${first} … ${last} (${count})`;
}
