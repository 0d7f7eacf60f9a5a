// The kinds of actions, in the order of Kind in program/actions.py. A test compares the two.

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
  "GATHER_P",
];
export const KIND = Object.fromEntries(KINDS.map((name, number) => [name, number]));

export const KIND_LABELS = [
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
  "all-gather of parameters",
];

// The values of Reason in report/analysis/gaps.py.
export const REASON = { TRANSFER: 0, WORK: 1, LINK: 2, DONE: 3, UNKNOWN: 4, EARLIER: 5, BLOCKED: 6 };

export const isCompute = (kind) => kind <= KIND.STEP;
export const isSend = (kind) => kind >= KIND.SEND_F && kind <= KIND.SEND_P;
export const isReduction = (kind) => kind >= KIND.REDUCE_GRAD;
