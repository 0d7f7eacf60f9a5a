// The rows of the table that compares plans: the timelines of the report, and what other planners would give.

import { showBytes, showPercent, showSeconds } from "./format.mjs";

export const COLUMNS = [
  { key: "name", text: "plan" },
  { key: "iteration", text: "iteration", number: true, show: showSeconds },
  { key: "ratio", text: "× fastest", number: true, show: (value) => value.toFixed(2) },
  { key: "rowsPerSecond", text: "rows/s", number: true, show: (value) => value.toFixed(1) },
  { key: "bubble", text: "bubble", number: true, show: showPercent },
  { key: "peak", text: "peak memory", number: true, show: showBytes },
  { key: "traffic", text: "traffic", number: true, show: showBytes },
  { key: "gap", text: "over bound", number: true, show: showPercent },
  { key: "note", text: "" },
];

// A run says when things happened. What it held and sent is known from its program alone.
const NOT_MEASURED = ["peak", "traffic"];

export function compareRows(data) {
  const rows = data.subjects.map((subject, number) => ({
    ...subject.figures,
    name: subject.name,
    iteration: subject.iteration,
    note: subject.origin === "measured" ? measuredNote(subject.figures.fits) : noteOf(subject.figures.fits, ""),
    predicted: subject.origin === "measured" ? NOT_MEASURED : [],
    task: subject.task,
    number,
  }));
  data.problems.forEach((baselines, problem) => {
    const { figures, model, clusterName, task } = data.subjects.find((subject) => subject.problem === problem);
    for (const baseline of baselines) {
      if (data.subjects.some((subject) => subject.problem === problem && isSame(subject, baseline))) continue;
      rows.push({
        ...baseline,
        name: `${baseline.planner} + ${baseline.schedule}${data.mixed ? `, ${model} on ${clusterName}` : ""}`,
        gap: figures.bound > 0 ? baseline.iteration / figures.bound - 1 : null,
        note: noteOf(baseline.fits, "for comparison"),
        predicted: [],
        task,
        number: null,
      });
    }
  });
  for (const row of rows) {
    // Only what does the same work can be compared.
    const same = rows.filter((other) => other.task === row.task);
    const fitting = same.filter((other) => other.fits !== false && other.iteration > 0);
    const fastest = Math.min(...(fitting.length ? fitting : same).map((other) => other.iteration));
    row.ratio = fastest > 0 ? row.iteration / fastest : null;
  }
  return rows;
}

// What a planner gives is not told twice.
const isSame = (subject, baseline) =>
  subject.planner === baseline.planner &&
  subject.schedule === baseline.schedule &&
  Math.abs(subject.iteration - baseline.iteration) <= 1e-9 * baseline.iteration;

const measuredNote = (fits) => (fits === false ? "measured; was predicted not to fit" : "measured");
const noteOf = (fits, text) => [fits === false ? "does not fit" : "", text].filter(Boolean).join(", ");

// Sorted by a column; what is not known comes last, whichever way.
export function sortedRows(rows, key, down) {
  const missing = (row) => row[key] === null || row[key] === undefined;
  const compare = (one, other) => {
    if (missing(one) || missing(other)) return missing(one) - missing(other);
    const order = typeof one[key] === "string" ? one[key].localeCompare(other[key]) : one[key] - other[key];
    return down ? -order : order;
  };
  return [...rows].sort(compare);
}
