// The timeline as a table, one device at a time, for screen readers and for exact numbers.

import { actionName, gapText } from "../data/gaps.mjs";
import { choice, el, table, tableRow } from "../ui/dom.mjs";
import { deviceItems } from "../timeline/items.mjs";
import { KIND_LABELS } from "../data/action_kinds.mjs";
import { secondsOf } from "../data/timeline_model.mjs";
import { showSeconds } from "../data/format.mjs";

const PAGE = 200;
const COLUMNS_OF_TABLE = [
  { text: "action" },
  { text: "start", number: true },
  { text: "duration", number: true },
  { text: "description" },
];

export function tableView(app) {
  const details = el("details", { id: "table" }, el("summary", { text: "The timeline as a table" }));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(tableContent(app));
  });
  return el("section", { "aria-label": "The timeline as a table" }, details);
}

function tableContent(app) {
  const tracks = app.models.flatMap((model) =>
    model.devices.map((device, number) => ({ model, number, text: `${model.name}: ${device.name}` })),
  );
  const box = el("div");
  const show = (index) =>
    box.replaceChildren(...deviceTable(tracks[index].model, tracks[index].number, tracks[index].text));
  show(0);
  const options = tracks.map((track, index) => [String(index), track.text]);
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
  const content = table(caption, COLUMNS_OF_TABLE, []);
  content.classList.add("wrapped");
  const body = content.querySelector("tbody");
  let next = 0;
  const more = el("button", { type: "button", text: "more rows" });
  const grow = () => {
    for (const item of items.slice(next, next + PAGE)) body.append(tableRow(COLUMNS_OF_TABLE, cellsOf(model, item)));
    next += PAGE;
    more.hidden = next >= items.length;
  };
  more.addEventListener("click", grow);
  grow();
  return [content, more];
}

function cellsOf(model, { type, action, gap, start, seconds }) {
  if (type === "action") {
    return [
      actionName(model, action),
      showSeconds(start),
      showSeconds(secondsOf(model, action)),
      KIND_LABELS[model.kind[action]],
    ];
  }
  const { title, reason, lines } = gapText(model, gap);
  const parts = lines.map((line) => `${showSeconds(line.seconds)}: ${line.text}`).join("; ");
  return ["gap", showSeconds(start), showSeconds(seconds), `${title}. ${reason} ${parts}`.trim()];
}
