// The timeline as tables, a device at a time: for screen readers, and for whoever wants the numbers.

import { actionName, gapWords } from "../data/gaps.mjs";
import { choice, el, table, tableRow } from "../ui/dom.mjs";
import { deviceItems } from "../timeline/items.mjs";
import { KIND_WORDS } from "../data/action_kinds.mjs";
import { secondsOf } from "../data/timeline_model.mjs";
import { showSeconds } from "../data/format.mjs";

const PAGE = 200;
const COLUMNS_OF_TABLE = [
  { text: "what" },
  { text: "starts", number: true },
  { text: "takes", number: true },
  { text: "is" },
];

export function tableView(app) {
  const details = el("details", { id: "table" }, el("summary", { text: "The timeline as a table" }));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(content(app));
  });
  return el("section", { "aria-label": "The timeline as a table" }, details);
}

function content(app) {
  const tracks = app.models.flatMap((model) =>
    model.devices.map((device, number) => ({ model, number, text: `${model.name}: ${device.name}` })),
  );
  const box = el("div");
  const show = (place) =>
    box.replaceChildren(...deviceTable(tracks[place].model, tracks[place].number, tracks[place].text));
  show(0);
  const options = tracks.map((track, place) => [String(place), track.text]);
  return el(
    "div",
    {},
    el(
      "p",
      {},
      choice("Device", options, "0", (value) => show(Number(value))),
    ),
    box,
  );
}

function deviceTable(model, device, caption) {
  const items = deviceItems(model, device);
  const found = table(caption, COLUMNS_OF_TABLE, []);
  found.classList.add("wrapped");
  const body = found.querySelector("tbody");
  let next = 0;
  const more = el("button", { type: "button", text: "more rows" });
  const grow = () => {
    for (const item of items.slice(next, next + PAGE)) body.append(tableRow(COLUMNS_OF_TABLE, cellsOf(model, item)));
    next += PAGE;
    more.hidden = next >= items.length;
  };
  more.addEventListener("click", grow);
  grow();
  return [found, more];
}

function cellsOf(model, { type, action, gap, start, seconds }) {
  if (type === "action") {
    return [
      actionName(model, action),
      showSeconds(start),
      showSeconds(secondsOf(model, action)),
      KIND_WORDS[model.kind[action]],
    ];
  }
  const words = gapWords(model, gap);
  const parts = words.lines.map((line) => `${showSeconds(line.seconds)}: ${line.text}`).join("; ");
  return ["gap", showSeconds(start), showSeconds(seconds), `${words.title}. ${words.reason} ${parts}`.trim()];
}
