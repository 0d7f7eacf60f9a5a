// A small timeline by hand, packed as report/html/payload/arrays.py does it.
//
//   d0   F0 0-2, F1 2-4 ......... idle .......... B0 12-14, idle, B1 16-18
//   d1   ...... F0 5-7, B0 7-9, F1 9-11, B1 11-13 ......
//
// tests/timeline/test_causes.py derives the same timeline, in whole seconds.

import { KINDS, KIND, REASON } from "../../src/penstock/report/html/app/data/action_kinds.mjs";
import { makeModel } from "../../src/penstock/report/html/app/data/timeline_model.mjs";

const { F, B, STEP, SEND_F, SEND_B } = KIND;

// kind, stage, micro-batch, start, end, needs (indices), peer (or -1)
export const ACTIONS = [
  [F, 0, 0, 0, 2, []],
  [SEND_F, 0, 0, 2, 5, [0], 1],
  [F, 0, 1, 2, 4, []],
  [SEND_F, 0, 1, 4, 7, [2], 1],
  [B, 0, 0, 12, 14, [9, 0]],
  [B, 0, 1, 16, 18, [12, 2]],
  [STEP, 0, -1, 18, 18, [5]],
  [F, 1, 0, 5, 7, [1]],
  [B, 1, 0, 7, 9, [7]],
  [SEND_B, 1, 0, 9, 12, [8], 0],
  [F, 1, 1, 9, 11, [3]],
  [B, 1, 1, 11, 13, [10]],
  [SEND_B, 1, 1, 13, 16, [11], 0],
  [STEP, 1, -1, 13, 13, [11]],
];

export const PATH = [0, 1, 7, 8, 10, 11, 12, 5];

// device, start, before (index, or -1), parts: reason, end, action, number
export const GAPS = [
  [
    0,
    4,
    4,
    [
      [REASON.TRANSFER, 5, 1, 1],
      [REASON.WORK, 9, 8, 2],
      [REASON.TRANSFER, 12, 9, 1],
    ],
  ],
  [0, 14, 5, [[REASON.TRANSFER, 16, 12, 1]]],
  [
    1,
    0,
    7,
    [
      [REASON.WORK, 2, 0, 1],
      [REASON.TRANSFER, 5, 1, 1],
    ],
  ],
  [1, 13, -1, [[REASON.DONE, 18, 5, 1]]],
];

function pack(columns) {
  const layout = {};
  const parts = [];
  let size = 0;
  for (const [name, [code, values]] of Object.entries(columns)) {
    const array = new { u1: Uint8Array, u4: Uint32Array, f4: Float32Array }[code](values);
    layout[name] = [size, array.length, code];
    const bytes = new Uint8Array(Math.ceil(array.byteLength / 4) * 4);
    bytes.set(new Uint8Array(array.buffer));
    parts.push(bytes);
    size += bytes.length;
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const bytes of parts) {
    all.set(bytes, at);
    at += bytes.length;
  }
  return { arrays: layout, data: Buffer.from(all).toString("base64") };
}

export function subject(changes = {}) {
  const jobs = ACTIONS.filter(([kind]) => kind <= STEP);
  const transfers = ACTIONS.filter(([kind]) => kind > STEP);
  const parts = GAPS.flatMap((gap) => gap[3]);
  return {
    name: "by hand",
    origin: "simulated",
    planner: "test",
    schedule: "1f1b",
    model: "two",
    clusterName: "pair",
    numMicrobatches: 2,
    microBatchSize: 1,
    unit: 1,
    iteration: 18,
    steady: 5,
    drain: 13,
    figures: { bubble: 20 / 36, bound: null, gap: null, fits: true, rowsPerSecond: 1, peak: 9, traffic: 16 },
    lead: "",
    sentences: [],
    improvements: [],
    rings: [],
    cluster: null,
    problem: null,
    devices: [
      { name: "d0", limit: 20, static: 2 },
      { name: "d1", limit: null, static: null },
    ],
    stages: [
      { start: 0, stop: 1, forward: [["d0", 1]], backward: [["d0", 1]], recompute: false },
      { start: 1, stop: 2, forward: [["d1", 1]], backward: [["d1", 1]], recompute: false },
    ],
    layers: { kind: "k", names: ["a", "b"], forward: [2, 2], backward: [2, 2] },
    begins: [0, 7, 14],
    gapBegins: [0, 2, 4],
    ...pack({
      kind: ["u1", ACTIONS.map((row) => row[0])],
      stage: ["u1", ACTIONS.map((row) => row[1])],
      microbatch: ["u1", ACTIONS.map((row) => row[2] + 1)],
      start: ["u4", ACTIONS.map((row) => row[3])],
      end: ["u4", ACTIONS.map((row) => row[4])],
      numNeeds: ["u1", ACTIONS.map((row) => row[5].length)],
      needs: ["u1", ACTIONS.flatMap((row) => row[5])],
      path: ["u1", PATH],
      memoryDuring: ["f4", jobs.map((_, index) => index + 1)],
      memoryAfter: ["f4", jobs.map((_, index) => index + 2)],
      peer: ["u1", transfers.map((row) => row[6] + 1)],
      bytes: ["f4", transfers.map(() => 4)],
      gapStart: ["u4", GAPS.map((gap) => gap[1])],
      gapBefore: ["u1", GAPS.map((gap) => gap[2] + 1)],
      gapParts: ["u1", GAPS.map((gap) => gap[3].length)],
      partReason: ["u1", parts.map((part) => part[0])],
      partEnd: ["u4", parts.map((part) => part[1])],
      partAction: ["u1", parts.map((part) => part[2] + 1)],
      partNum: ["u1", parts.map((part) => part[3])],
    }),
    ...changes,
  };
}

export const model = (changes = {}, number = 0) => ({ ...makeModel(subject(changes), number), kindNames: KINDS });
