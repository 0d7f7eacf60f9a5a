// What actions do. The order is that of Kind in program/actions.py; a test holds the two together.

export const KINDS = [
  "F",
  "R",
  "I",
  "W",
  "B",
  "STEP",
  "SEND_F",
  "SEND_B",
  "SEND_S",
  "SEND_P",
  "RECV_F",
  "RECV_B",
  "RECV_S",
  "RECV_P",
  "REDUCE_GRAD",
  "REDUCE_TIE",
];
export const KIND = Object.fromEntries(KINDS.map((name, number) => [name, number]));

export const KIND_WORDS = [
  "forward",
  "recompute",
  "input gradient",
  "weight gradient",
  "backward",
  "optimizer step",
  "activations",
  "gradients",
  "saved tensors",
  "parameters",
  "",
  "",
  "",
  "",
  "all-reduce",
  "all-reduce of shared parameters",
];

// The order of Reason in report/analysis/gaps.py.
export const REASON = { TRANSFER: 0, WORK: 1, LINK: 2, DONE: 3, UNKNOWN: 4, EARLIER: 5 };

export const isJob = (kind) => kind <= KIND.STEP;
export const isSend = (kind) => kind >= KIND.SEND_F && kind <= KIND.SEND_P;
export const isReduction = (kind) => kind >= KIND.REDUCE_GRAD;
