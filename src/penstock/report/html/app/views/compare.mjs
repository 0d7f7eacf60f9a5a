// The section that compares: a table of plans that can be sorted, and predicted against measured.

import { COLUMNS, compareRows, sortedRows } from "../data/comparison_rows.mjs";
import { el, section, table } from "../ui/dom.mjs";
import { counted, showSeconds, withCommas, withUnits } from "../data/format.mjs";

const MOST_OPEN = 12;

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
    el("p", { class: "hint", text: withUnits(boundWords(data)) }),
    ...data.pairs.flatMap((pair) => pairContent(data, pair)),
  );
}

function boundWords(data) {
  const bounded = new Map(data.subjects.filter(({ figures }) => figures.bound).map((found) => [found.problem, found]));
  const baselines = data.problems.some((found) => found.length)
    ? "Rows for comparison are other planners on the same problem, each with the schedule that it plans for."
    : "";
  const measured = data.subjects.some((subject) => subject.origin === "measured")
    ? "Memory and traffic of a run are not measured: they are what its plan predicts. " +
      "Bounds are for predicted times, so a run can be under them."
    : "";
  const bounds = [...bounded.values()].map(
    ({ model, clusterName, numMicrobatches, rows, figures }) =>
      `No plan for ${model} on ${clusterName} with ${counted(numMicrobatches, "micro-batch", "es")} of ` +
      `${counted(rows, "row")} can be faster than ${showSeconds(figures.bound)} (${figures.boundBy} bound).`,
  );
  return [...bounds, baselines, measured].filter(Boolean).join(" ");
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
  const found = table("What each plan gives; press a heading to sort", columns, cells);
  found.querySelectorAll("thead th").forEach((head, place) => {
    const sorted = COLUMNS[place].key === sort;
    head.setAttribute("aria-sort", sorted ? (down ? "descending" : "ascending") : "none");
  });
  return found;
}

function pairContent(data, pair) {
  const columns = [
    { text: "work" },
    { text: "on" },
    { text: "times", number: true },
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
    el("h3", { text: `Predicted against measured: ${data.subjects[pair.measured].name}` }),
    ...pair.words.map((text) => el("p", { text: withUnits(text) })),
    el(
      "details",
      rows.length <= MOST_OPEN ? { open: true } : {},
      el("summary", { text: `${counted(rows.length, "kind")} of work, one by one` }),
      table("Predicted against measured, by kind of work", columns, rows),
    ),
  ];
}
