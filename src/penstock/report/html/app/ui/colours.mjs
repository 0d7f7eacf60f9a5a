// The colour-blind safe palette of Okabe and Ito, for light and dark pages.

import { KINDS, isCompute, isReduction } from "../data/action_kinds.mjs";

const LIGHT = {
  F: ["#0072b2", "#56b4e9"],
  R: ["#a04f7d", "#d9a0c2"],
  I: ["#e69f00", "#f6cf73"],
  W: ["#009e73", "#77d1b7"],
  B: ["#d55e00", "#f3a26d"],
  STEP: ["#767676", "#b4b4b4"],
  SEND_F: "#56a5d8",
  SEND_B: "#e9965a",
  SEND_S: "#c58bb0",
  SEND_P: "#9a9a9a",
  REDUCE: "#7d6bb0",
};
const DARK = {
  F: ["#3b9ddb", "#8ccbf2"],
  R: ["#c77ba8", "#e3b6d0"],
  I: ["#efb02e", "#f8d98b"],
  W: ["#24b58b", "#86d9c1"],
  B: ["#e97c2e", "#f5b183"],
  STEP: ["#9b9b9b", "#c6c6c6"],
  SEND_F: "#4b8fbd",
  SEND_B: "#c97f49",
  SEND_S: "#a8739a",
  SEND_P: "#858585",
  REDUCE: "#9685cc",
};

const THEMES = {
  light: {
    back: "#ffffff",
    band: "#f3f4f6",
    track: "#eceef1",
    text: "#1c2733",
    faint: "#5c6773",
    line: "#d5d9de",
    mark: "#111111",
    dim: 0.22,
    memory: "#c3ccd6",
    limit: "#c4614f",
    phase: "#f4ead2",
    phaseSteady: "#e3efe6",
    kinds: LIGHT,
  },
  dark: {
    back: "#161b21",
    band: "#1d242b",
    track: "#232b33",
    text: "#e3e8ee",
    faint: "#9aa7b4",
    line: "#39434d",
    mark: "#ffffff",
    dim: 0.25,
    memory: "#45535f",
    limit: "#e07a69",
    phase: "#3a3322",
    phaseSteady: "#22352a",
    kinds: DARK,
  },
};

export const theme = (dark) => (dark ? THEMES.dark : THEMES.light);

// One colour for each device, in cluster order. After eight devices the colours repeat in another shade.
const DEVICES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a900", "#6a5acd"];

export function deviceColour(number) {
  const base = parse(DEVICES[number % DEVICES.length]);
  const round = Math.floor(number / DEVICES.length) % 3;
  const [target, part] = [
    [[255, 255, 255], 0],
    [[255, 255, 255], 0.4],
    [[0, 0, 0], 0.3],
  ][round];
  return hex(base.map((value, i) => value + (target[i] - value) * part));
}

// From dark blue over grey to yellow with even steps of lightness, for ordered values.
const ORDER = ["#0b2f6b", "#34476d", "#575d6d", "#7b7a75", "#a19a72", "#c8ba63", "#f1dc4a"].map(parse);

export function orderColour(part) {
  const position = Math.min(Math.max(part, 0), 1) * (ORDER.length - 1);
  const low = Math.min(Math.floor(position), ORDER.length - 2);
  return hex(ORDER[low].map((value, i) => value + (ORDER[low + 1][i] - value) * (position - low)));
}

// Blue: shorter than predicted; grey: as predicted; orange: longer. Half or twice the time has full colour.
export function ratioColour(ratio, dark) {
  const part = Math.min(1, Math.abs(Math.log2(ratio)));
  const middle = parse(dark ? "#4a545e" : "#c3c9cf");
  const end = parse(ratio < 1 ? (dark ? "#58b4ee" : "#0072b2") : dark ? "#f08a3c" : "#d55e00");
  return hex(middle.map((value, i) => value + (end[i] - value) * part));
}

export function parse(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

export function hex(parts) {
  return `#${parts.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
}

// Black or white, whichever has more contrast on a colour.
export function inkOn(colour) {
  const [red, green, blue] = parse(colour).map((value) => (value / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3 ? "#000000" : "#ffffff";
}

// The colour of an action: by its kind, by its micro-batch, or by its difference from the prediction.
export function actionColours(model, { by, dark, partner }) {
  const { kinds } = theme(dark);
  const plain = kindColours(kinds);
  if (by === "microbatch") {
    const last = Math.max(1, model.numMicrobatches - 1);
    const colours = Array.from({ length: model.numMicrobatches }, (_, number) => orderColour(number / last));
    return (action) => colours[model.microbatch[action] - 1] ?? plain[model.kind[action]][0];
  }
  if (by === "error" && partner) {
    const none = dark ? "#4a545e" : "#c3c9cf";
    return (action) => {
      const [measured, predicted] = model.origin === "measured" ? [model, partner] : [partner, model];
      const predictedSeconds = (predicted.end[action] - predicted.start[action]) * predicted.unit;
      const measuredSeconds = (measured.end[action] - measured.start[action]) * measured.unit;
      const isKnown = isCompute(model.kind[action]) && predictedSeconds > 0 && measuredSeconds > 0;
      return isKnown ? ratioColour(measuredSeconds / predictedSeconds, dark) : none;
    };
  }
  return (action) => {
    const shades = plain[model.kind[action]];
    return shades[model.shades[model.deviceOf[action]].get(model.stage[action]) ?? 0] ?? shades[0];
  };
}

// By kind: the colours for both shades. Receives are not drawn.
export function kindColours(kinds) {
  return KINDS.map((name, kind) => {
    const colour = kinds[isReduction(kind) ? "REDUCE" : name];
    return Array.isArray(colour) ? colour : [colour, colour];
  });
}
