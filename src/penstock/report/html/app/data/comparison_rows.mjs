// The rows of the comparison table: the timelines of the report, and the baselines.

import { showBytes, showPercent, showSeconds } from "./format.mjs";

export const COLUMNS = [
  { key: "name", text: "plan" },
  { key: "iteration", text: "iteration", number: true, show: showSeconds },
  { key: "ratio", text: "× fastest", number: true, show: (value) => value.toFixed(2) },
  { key: "rowsPerSecond", text: "rows/s", number: true, show: (value) => value.toFixed(1) },
  { key: "bubble", text: "bubble", number: true, show: showPercent },
  { key: "peak", text: "peak memory", number: true, show: showBytes },
  { key: "traffic", text: "traffic", number: true, show: showBytes },
  { key: "gap", text: "gap to bound", number: true, show: showPercent },
  { key: "note", text: "" },
];

// A run measures times. Its memory and traffic are predicted from its program.
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
    const { model, clusterName, task } = data.subjects.find((subject) => subject.problem === problem);
    for (const baseline of baselines) {
      if (data.subjects.some((subject) => subject.problem === problem && isSame(subject, baseline))) continue;
      rows.push({
        ...baseline,
        name: `${baseline.planner} + ${baseline.schedule}${data.mixed ? `, ${model} on ${clusterName}` : ""}`,
        note: noteOf(baseline.fits, "baseline"),
        predicted: [],
        task,
        number: null,
      });
    }
  });
  for (const row of rows) {
    // Only plans for the same model, cluster and global batch size are compared.
    const same = rows.filter((other) => other.task === row.task);
    const fitting = same.filter((other) => other.fits !== false && other.iteration > 0);
    const fastest = Math.min(...(fitting.length ? fitting : same).map((other) => other.iteration));
    row.ratio = fastest > 0 ? row.iteration / fastest : null;
  }
  return rows;
}

// A baseline that is a subject of the report has no row of its own.
const isSame = (subject, baseline) =>
  subject.planner === baseline.planner &&
  subject.schedule === baseline.schedule &&
  Math.abs(subject.iteration - baseline.iteration) <= 1e-9 * baseline.iteration;

const measuredNote = (fits) => (fits === false ? "measured; predicted not to fit" : "measured");
const noteOf = (fits, text) => [fits === false ? "does not fit" : "", text].filter(Boolean).join(", ");

// Sorted by a column; unknown values come last in both directions.
export function sortedRows(rows, key, down) {
  const missing = (row) => row[key] === null || row[key] === undefined;
  const compare = (one, other) => {
    if (missing(one) || missing(other)) return missing(one) - missing(other);
    const order = typeof one[key] === "string" ? one[key].localeCompare(other[key]) : one[key] - other[key];
    return down ? -order : order;
  };
  return [...rows].sort(compare);
}
