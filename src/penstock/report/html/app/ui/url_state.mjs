// The state of the page in its address, so that a view can be shared. Only differences from the start are written.

export const START = {
  from: null, // seconds; null: all
  to: null,
  colour: "kind",
  open: [], // devices whose links are shown: "timeline.device"
  hidden: [], // numbers of timelines
  critical: false,
  memory: true,
  over: true, // predicted over measured
  theme: "auto",
  pick: null, // the selected action: "timeline.action"
  gap: null, // or the selected gap: "timeline.gap"
  about: 0, // the timeline of the sections summary, plan and cluster
  sort: "iteration",
  down: false,
};

const CHOICES = { colour: ["kind", "microbatch", "error"], theme: ["auto", "light", "dark"] };
const PAIR = /^\d{1,9}\.\d{1,9}$/;

export function encodeState(state) {
  const parts = [];
  for (const [name, start] of Object.entries(START)) {
    const value = state[name];
    if (value === null || value === start || (Array.isArray(value) && !value.length)) continue;
    let text = value;
    if (typeof value === "boolean") text = value ? 1 : 0;
    if (typeof value === "number") text = Number(value.toPrecision(9));
    parts.push(`${name}=${encodeURIComponent(Array.isArray(value) ? value.join(",") : text)}`);
  }
  return parts.join("&");
}

// Invalid values are ignored, because an address can contain anything.
export function decodeState(text) {
  const state = { ...START };
  for (const part of text.replace(/^#/, "").split("&")) {
    const [name, raw = ""] = part.split("=");
    if (!Object.hasOwn(START, name)) continue;
    const value = readable(raw);
    const parsed = value === null ? undefined : READERS[name]?.(value);
    if (parsed !== undefined) state[name] = parsed;
  }
  if (state.from === null || state.to === null || !(state.to > state.from)) state.from = state.to = null;
  return state;
}

function readable(raw) {
  try {
    return decodeURIComponent(raw);
  } catch {
    return null;
  }
}

const seconds = (text) =>
  text !== "" && Number.isFinite(Number(text)) && Number(text) >= 0 ? Number(text) : undefined;
const flag = (text) => (text === "1" ? true : text === "0" ? false : undefined);
const oneOf = (name) => (text) => (CHOICES[name].includes(text) ? text : undefined);
const list = (pattern) => (text) => text.split(",").filter((item) => pattern.test(item));

const READERS = {
  from: seconds,
  to: seconds,
  colour: oneOf("colour"),
  open: list(PAIR),
  hidden: (text) => list(/^\d{1,6}$/)(text).map(Number),
  critical: flag,
  memory: flag,
  over: flag,
  theme: oneOf("theme"),
  pick: (text) => (PAIR.test(text) ? text : undefined),
  gap: (text) => (PAIR.test(text) ? text : undefined),
  about: (text) => (/^\d{1,6}$/.test(text) ? Number(text) : undefined),
  sort: (text) => (/^[a-zA-Z]{1,20}$/.test(text) ? text : undefined),
  down: flag,
};
