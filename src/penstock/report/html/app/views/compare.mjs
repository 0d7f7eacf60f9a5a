// The comparison section: a sortable table of plans, and predictions beside measurements.

import { COLUMNS, compareRows, sortedRows } from "../data/comparison_rows.mjs";
import { el, section, table } from "../ui/dom.mjs";
import { counted, showSeconds, withCommas, withUnits } from "../data/format.mjs";

const MAX_OPEN_ROWS = 12;

export function compareView(app) {
  const { data } = app;
  const rows = compareRows(data);
  const box = el("div");
  const fill = () => box.replaceChildren(planTable(app, rows));
  app.listen((state, before) => {
    if (state.sort !== before.sort || state.down !== before.down) fill();
  });
  fill();
  return section(
    "compare",
    "Compare",
    data.mixed && el("p", { text: data.mixed }),
    box,
    el("p", { class: "hint", text: withUnits(boundHint(data)) }),
    ...data.pairs.flatMap((pair) => pairContent(data, pair)),
  );
}

function boundHint(data) {
  const bounded = new Map(data.subjects.filter(({ figures }) => figures.bound).map((subject) => [subject.problem, subject]));
  const baselineHint = data.problems.some((baselines) => baselines.length)
    ? "Baselines are other planners on the same problem, each with its own schedule."
    : "";
  const measured = data.subjects.some((subject) => subject.origin === "measured")
    ? "Memory and traffic of a run are predicted from its plan, not measured. " +
      "Bounds hold for predicted times, so a run can be below them."
    : "";
  const bounds = [...bounded.values()].map(
    ({ model, clusterName, numMicrobatches, microBatchSize, figures }) =>
      `No plan for ${model} on ${clusterName} with ${counted(numMicrobatches, "micro-batch", "es")} of ` +
      `${counted(microBatchSize, "row")} can be faster than ${showSeconds(figures.bound)} (${figures.boundBy} bound).`,
  );
  return [...bounds, baselineHint, measured].filter(Boolean).join(" ");
}

function planTable(app, rows) {
  const { sort, down } = app.state;
  const sortBy = (column) => () => {
    app.update({ sort: column.key, down: sort === column.key ? !down : false });
    document.querySelector(`[data-sort="${column.key}"]`)?.focus();
  };
  const columns = COLUMNS.map((column) => ({
    ...column,
    head: column.text
      ? el("button", {
          type: "button",
          class: "sort",
          "data-sort": column.key,
          onclick: sortBy(column),
          text: column.text + (sort === column.key ? (down ? " ▼" : " ▲") : ""),
        })
      : "",
  }));
  const cells = sortedRows(rows, sort, down).map((row) =>
    COLUMNS.map((column) => {
      const value = row[column.key];
      const text = value === null || value === undefined ? "" : column.show ? column.show(value) : value;
      if (row.predicted.includes(column.key)) return el("span", {}, el("small", { text: "predicted " }), text);
      return column.key === "name" && row.number !== null ? el("b", { text }) : text;
    }),
  );
  const content = table("Figures of each plan; click a heading to sort", columns, cells);
  content.querySelectorAll("thead th").forEach((head, index) => {
    const sorted = COLUMNS[index].key === sort;
    head.setAttribute("aria-sort", sorted ? (down ? "descending" : "ascending") : "none");
  });
  return content;
}

function pairContent(data, pair) {
  const columns = [
    { text: "action" },
    { text: "devices" },
    { text: "count", number: true },
    { text: "predicted", number: true },
    { text: "measured", number: true },
    { text: "error", number: true },
  ];
  const rows = pair.rows.map((row) => [
    row.name,
    row.devices.join(", "),
    withCommas(row.num),
    showSeconds(row.predicted),
    row.atMost && !row.measured ? "not waited for" : `${row.atMost ? "≤ " : ""}${showSeconds(row.measured)}`,
    row.ratio === null ? "" : `${row.ratio >= 1 ? "+" : "−"}${(100 * Math.abs(row.ratio - 1)).toFixed(1)} %`,
  ]);
  return [
    el("h3", { text: `Prediction and measurement: ${data.subjects[pair.measured].name}` }),
    ...pair.sentences.map((text) => el("p", { text: withUnits(text) })),
    el(
      "details",
      rows.length <= MAX_OPEN_ROWS ? { open: true } : {},
      el("summary", { text: `${counted(rows.length, "kind")} of actions` }),
      table("Prediction and measurement by kind of action", columns, rows),
    ),
  ];
}
