// Gaps of devices and the text about their reasons, which come from report/analysis/gaps.py.

import { counted, showSeconds } from "./format.mjs";
import { KIND_LABELS, REASON, isReduction, isSend } from "./action_kinds.mjs";
import { NONE, microbatchOf, peerOf } from "./timeline_model.mjs";

const SLIVER = 0.05; // of a gap

export function actionName(model, action) {
  const microbatch = microbatchOf(model, action);
  return `${model.stage[action]}${model.kindNames[model.kind[action]]}${microbatch === NONE ? "" : microbatch}`;
}

export const deviceName = (model, device) => model.devices[device].name;

// The gap of a device at a time (in ticks), or NONE.
export function gapAt(model, device, time) {
  let [low, high] = [model.gapBegins[device], model.gapBegins[device + 1]];
  const begin = low;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (model.gapStart[middle] <= time) low = middle + 1;
    else high = middle;
  }
  const gap = low - 1;
  return gap >= begin && time < gapEnd(model, gap) ? gap : NONE;
}

export const gapEnd = (model, gap) => model.partEnd[model.partBegins[gap + 1] - 1];

export function gapDevice(model, gap) {
  let device = 0;
  while (model.gapBegins[device + 1] <= gap) device++;
  return device;
}

export function partsOf(model, gap) {
  const parts = [];
  let start = model.gapStart[gap];
  for (let part = model.partBegins[gap]; part < model.partBegins[gap + 1]; part++) {
    parts.push({
      reason: model.partReason[part],
      seconds: (model.partEnd[part] - start) * model.unit,
      action: model.partAction[part] - 1,
      num: model.partNum[part],
    });
    start = model.partEnd[part];
  }
  return parts;
}

// A title, the awaited transfer, and a line for every part, the latest first.
export function gapText(model, gap) {
  const device = deviceName(model, gapDevice(model, gap));
  const before = model.gapBefore[gap] - 1;
  const seconds = (gapEnd(model, gap) - model.gapStart[gap]) * model.unit;
  const parts = partsOf(model, gap);
  if (before === NONE) {
    const last = parts[0].action;
    return {
      title: `${device} is idle for ${showSeconds(seconds)} after finishing, waiting for the iteration to end`,
      reason: `The last action is ${actionName(model, last)} on ${deviceName(model, model.deviceOf[last])}.`,
      lines: [],
    };
  }
  const { kept, dropped } = withoutSlivers(parts, seconds);
  const lines = kept.map((part) => ({ seconds: part.seconds, text: partText(model, part) })).reverse();
  if (dropped > 0) lines.push({ seconds: dropped, text: `in between: ${unknownText(model)}` });
  return {
    title: `${device} waited ${showSeconds(seconds)} before ${actionName(model, before)}`,
    reason: awaitedText(model, kept[kept.length - 1]),
    lines,
  };
}

// Measured gaps have short parts without a reason between those that have one. They are summed in one line.
function withoutSlivers(parts, seconds) {
  const isSliver = (part) => part.reason === REASON.UNKNOWN && part.seconds < SLIVER * seconds;
  const kept = parts.filter((part) => !isSliver(part));
  if (!kept.length) return { kept: parts, dropped: 0 };
  return { kept, dropped: parts.filter(isSliver).reduce((sum, part) => sum + part.seconds, 0) };
}

const unknownText = (model) =>
  "no cause in the program" +
  (model.origin === "measured" ? "; time of the runtime or of the machine" : "");

function awaitedText(model, { reason, seconds, action }) {
  if (reason !== REASON.TRANSFER) return "";
  const atMost = model.origin === "measured" ? "at most " : "";
  const transfer = seconds > 0 ? `, of which ${atMost}${showSeconds(seconds)} transfer` : "";
  return `Waiting for ${messageText(model, action)}${transfer}.`;
}

export function messageText(model, action) {
  const kind = model.kind[action];
  const name = actionName(model, action);
  if (!isSend(kind)) return isReduction(kind) ? `the ${KIND_LABELS[kind]} ${name}` : name;
  return `${KIND_LABELS[kind]} ${name} from ${deviceName(model, model.deviceOf[action])}`;
}

function partText(model, { reason, action, num }) {
  const at = action === NONE ? "" : deviceName(model, model.deviceOf[action]);
  const more = (noun) => (num > 1 ? `, and ${counted(num - 1, noun)} before it` : "");
  switch (reason) {
    case REASON.TRANSFER:
      return `${actionName(model, action)} was being transferred`;
    case REASON.WORK:
      return `${at} was running ${actionName(model, action)}${more("action")}`;
    case REASON.LINK: {
      const peer = peerOf(model, action);
      const link = peer === NONE ? "links were" : `the link from ${at} to ${deviceName(model, peer)} was`;
      return `${link} busy with ${actionName(model, action)}${more("transfer")}`;
    }
    case REASON.BLOCKED:
      return `a device was blocked until ${actionName(model, action)} had arrived${more("transfer")}`;
    case REASON.DONE:
      return "idle after finishing";
    case REASON.EARLIER:
      return "earlier reasons are not shown";
    default:
      return unknownText(model);
  }
}
