import assert from "node:assert/strict";
import { test } from "node:test";

import { KINDS } from "../../src/penstock/report/html/app/data/action_kinds.mjs";
import { START, decodeState, encodeState } from "../../src/penstock/report/html/app/ui/url_state.mjs";
import { makeApp, sane, shownModels } from "../../src/penstock/report/html/app/ui/app.mjs";
import { COLUMNS, compareRows, sortedRows } from "../../src/penstock/report/html/app/data/comparison_rows.mjs";
import { subject } from "./sample_timeline.mjs";

const data = (subjects, more = {}) => ({
  kinds: KINDS,
  layers: [],
  subjects,
  pairs: [],
  problems: [],
  clusters: [],
  ...more,
});

test("an address has the differences from the start", () => {
  assert.equal(encodeState(START), "");
  const state = {
    ...START,
    from: 0.125,
    to: 2.5,
    colour: "microbatch",
    open: ["0.1", "0.2"],
    hidden: [1],
    critical: true,
    memory: false,
    pick: "0.12",
    theme: "dark",
  };
  const text = encodeState(state);
  assert.equal(
    text,
    "from=0.125&to=2.5&colour=microbatch&open=0.1%2C0.2&hidden=1&critical=1&memory=0&theme=dark&pick=0.12",
  );
  assert.deepEqual(decodeState(`#${text}`), state);
});

test("invalid addresses are ignored", () => {
  for (const text of [
    "",
    "#",
    "#from=1",
    "#from=2&to=1",
    "#from=x&to=NaN",
    "#colour=<b>",
    "#pick=1.2.3&gap=a",
    "#__proto__=1",
    "#open=%E0%A4%A",
    "#about=-1&sort=%3Cscript%3E",
  ]) {
    assert.deepEqual(decodeState(text), START, text);
  }
  assert.deepEqual(decodeState("#open=0.1,x,2").open, ["0.1"]);
});

test("references of an address to missing parts are dropped", () => {
  const app = makeApp(data([subject()]), "#about=7&hidden=0&open=0.1,0.9&pick=0.999&from=3&to=99");
  assert.equal(app.state.about, 0);
  assert.deepEqual(app.state.hidden, []);
  assert.deepEqual(app.state.open, ["0.1"]);
  assert.equal(app.state.pick, null);
  assert.deepEqual(app.view(), { from: 3, to: 18 });
  assert.equal(sane({ ...START, gap: "0.3" }, app.models, 18).gap, "0.3");
});

test("predicted is drawn thin over measured", () => {
  const app = makeApp(
    data([subject(), subject({ origin: "measured" })], { pairs: [{ predicted: 0, measured: 1, rows: [], sentences: [] }] }),
    "",
  );
  let { models, ghosts } = shownModels(app);
  assert.deepEqual(
    models.map((model) => model.number),
    [1],
  );
  assert.equal(ghosts.get(1).number, 0);
  app.update({ over: false });
  ({ models, ghosts } = shownModels(app));
  assert.deepEqual(
    models.map((model) => model.number),
    [0, 1],
  );
  app.update({ over: true, hidden: [0] });
  ({ models, ghosts } = shownModels(app));
  assert.deepEqual([models.length, ghosts.size], [1, 0]);
});

test("plans are compared, and sorted by any column", () => {
  const one = subject({
    name: "mine",
    problem: 0,
    figures: { bound: 10, gap: 0.8, bubble: 0.5, fits: true, peak: 3, traffic: 2, rowsPerSecond: 1 },
  });
  const baseline = {
    planner: "spp",
    schedule: "pe",
    iteration: 36,
    bubble: 0.1,
    peak: 9,
    traffic: 1,
    rowsPerSecond: 2,
    fits: true,
    gap: 2.6,
  };
  const rows = compareRows(
    data([one], { problems: [[baseline, { ...baseline, planner: "big", iteration: 9, fits: false }]] }),
  );
  assert.deepEqual(
    rows.map((row) => [row.name, row.ratio, row.note]),
    [
      ["mine", 1, ""],
      ["spp + pe", 2, "baseline"],
      ["big + pe", 0.5, "does not fit, baseline"],
    ],
  );
  assert.equal(rows[1].gap, 2.6);
  // Memory and traffic of a run are predicted.
  const run = { ...one, origin: "measured", figures: { ...one.figures, fits: false } };
  const [measured] = compareRows(data([run]));
  assert.deepEqual(measured.predicted, ["peak", "traffic"]);
  assert.equal(measured.note, "measured; predicted not to fit");
  assert.ok(rows.every((row) => !row.predicted.length));
  for (const { key } of COLUMNS) assert.equal(sortedRows(rows, key, false).length, 3);
  const order = (key, down) => sortedRows(rows, key, down).map((row) => row.name);
  assert.deepEqual(order("peak", false), ["mine", "spp + pe", "big + pe"]);
  assert.deepEqual(order("bubble", true), ["mine", "spp + pe", "big + pe"]);
  assert.deepEqual(order("name", true), ["spp + pe", "mine", "big + pe"]);
  rows[0].peak = null; // unknown values come last in both directions
  assert.equal(order("peak", false)[2], "mine");
  assert.equal(order("peak", true)[2], "mine");
});

test("plans are compared only with those for the same task", () => {
  const figures = { ...subject().figures, bound: 10 };
  const small = { task: 0, problem: 0, iteration: 20, figures, model: "gpt", clusterName: "pair" };
  const large = { task: 1, problem: 1, iteration: 300, figures, model: "xl", clusterName: "eight" };
  const baseline = { planner: "spp", schedule: "pe", fits: true };
  const report = data([subject({ ...small, name: "a" }), subject({ ...large, name: "b" })], {
    problems: [[{ ...baseline, iteration: 40 }], [{ ...baseline, iteration: 150 }]],
    mixed: "These are for different models or clusters.",
  });
  assert.deepEqual(
    compareRows(report).map((row) => [row.name, row.ratio]),
    [
      ["a", 1],
      ["b", 2],
      ["spp + pe, gpt on pair", 2],
      ["spp + pe, xl on eight", 1],
    ],
  );
});
