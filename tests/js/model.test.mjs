import assert from "node:assert/strict";
import { test } from "node:test";

import { model } from "./sample_timeline.mjs";
import {
  loadOf,
  microbatchOf,
  peerOf,
  subLanes,
  trafficOf,
} from "../../src/penstock/report/html/app/data/timeline_model.mjs";
import { actionName, gapAt, gapText, partsOf } from "../../src/penstock/report/html/app/data/gaps.mjs";
import { REASON } from "../../src/penstock/report/html/app/data/action_kinds.mjs";
import { deviceItems } from "../../src/penstock/report/html/app/timeline/items.mjs";
import { actionLines, actionTitle } from "../../src/penstock/report/html/app/data/action_text.mjs";
import { needsOf, usersOf } from "../../src/penstock/report/html/app/data/dependencies.mjs";
import { actionAt, hitInRow, neighbour } from "../../src/penstock/report/html/app/interaction/hits.mjs";
import { makeLayout } from "../../src/penstock/report/html/app/timeline/layout.mjs";

const names = (timeline, actions) => Array.from(actions, (action) => actionName(timeline, action));

test("rows of jobs and of links", () => {
  const timeline = model();
  assert.deepEqual(names(timeline, timeline.tracks[0].jobs), ["0F0", "0F1", "0B0", "0B1", "0STEP"]);
  assert.deepEqual(
    timeline.tracks[0].lanes.map((lane) => [lane.target, names(timeline, lane.actions)]),
    [[1, ["0SEND_F0", "0SEND_F1"]]],
  );
  assert.equal(timeline.total, 18);
  assert.equal(peerOf(timeline, 1), 1);
  assert.equal(microbatchOf(timeline, 6), -1);
});

test("overlapping transfers of a link have different lanes", () => {
  // The latency of the first still runs when the second begins.
  const lanes = subLanes([0, 1, 2], [2, 4, 7], [5, 7, 9]);
  assert.deepEqual([...lanes.lane], [0, 1, 0]);
  assert.equal(lanes.numLanes, 2);
});

test("the critical path is read from the data", () => {
  const timeline = model();
  assert.deepEqual(names(timeline, timeline.path), [
    "0F0",
    "0SEND_F0",
    "1F0",
    "1B0",
    "1F1",
    "1B1",
    "1SEND_B1",
    "0B1",
  ]);
});

test("loads and traffic add up", () => {
  const timeline = model();
  assert.deepEqual([...loadOf(timeline, 0)], [4, 0, 0, 0, 4, 0]);
  assert.deepEqual(
    [...trafficOf(timeline)],
    [
      ['["d0","d1"]', 8],
      ['["d1","d0"]', 8],
    ],
  );
  const ringed = model({ rings: [{ devices: ["d0", "d1"], bytes: 5 }] });
  assert.deepEqual([...trafficOf(ringed).values()], [13, 13]);
});

test("gaps are found by time, and described", () => {
  const timeline = model();
  assert.deepEqual(
    [3.9, 4, 11.9, 12, 14, 17].map((time) => gapAt(timeline, 0, time)),
    [-1, 0, 0, -1, 1, -1],
  );
  assert.deepEqual(
    [0, 5, 13].map((time) => gapAt(timeline, 1, time)),
    [2, -1, 3],
  );
  assert.deepEqual(gapText(timeline, 0), {
    title: "d0 waited 8.00 s before 0B0",
    reason: "Waiting for gradients 1SEND_B0 from d1, of which 3.00 s transfer.",
    lines: [
      { seconds: 3, text: "1SEND_B0 was being transferred" },
      { seconds: 4, text: "d1 was running 1B0, and 1 action before it" },
      { seconds: 1, text: "0SEND_F0 was being transferred" },
    ],
  });
  assert.deepEqual(gapText(timeline, 3), {
    title: "d1 is idle for 5.00 s after finishing, waiting for the iteration to end",
    reason: "The last action is 0B1 on d0.",
    lines: [],
  });
  assert.match(gapText(model({ origin: "measured" }), 0).reason, /of which at most 3\.00 s transfer/);
  for (let gap = 0; gap < 4; gap++) {
    const sum = partsOf(timeline, gap).reduce((total, part) => total + part.seconds, 0);
    assert.equal(sum, [8, 2, 5, 5][gap]);
  }
});

test("short parts of a measured gap that have no reason do not hide the others", () => {
  // The first gap of d0 ends, and has in its middle, a tick of 0.01 for which there is no reason.
  const timeline = model({ origin: "measured" });
  Object.assign(timeline, {
    unit: 0.01,
    gapStart: [400, ...timeline.gapStart.slice(1)],
    gapParts: [4, ...timeline.gapParts.slice(1)],
    partBegins: [0, 4, 5, 7, 8],
    partReason: [REASON.WORK, REASON.UNKNOWN, REASON.TRANSFER, REASON.UNKNOWN],
    partEnd: [500, 501, 799, 800],
    partAction: [9, 0, 10, 0],
    partNum: [1, 1, 1, 1],
  });
  const text = gapText(timeline, 0);
  assert.equal(text.reason, "Waiting for gradients 1SEND_B0 from d1, of which at most 2.98 s transfer.");
  const unknown = "no cause in the program; time of the runtime or of the machine";
  assert.deepEqual(
    text.lines.map(({ seconds, text }) => [seconds.toFixed(2), text]),
    [
      ["2.98", "1SEND_B0 was being transferred"],
      ["1.00", "d1 was running 1B0"],
      ["0.02", `in between: ${unknown}`],
    ],
  );
  // A long one has a line of its own, and so has one that fills the gap.
  timeline.partEnd = [500, 600, 799, 800];
  assert.deepEqual(gapText(timeline, 0).lines[1].text, unknown);
  Object.assign(timeline, { partBegins: [0, 1, 2, 4, 5], partReason: [REASON.UNKNOWN], partEnd: [800] });
  assert.deepEqual(
    gapText(timeline, 0).lines.map(({ text }) => text),
    [unknown],
  );
});

test("what an action needed, and what needed it", () => {
  const timeline = model();
  const edges = (action) => [names(timeline, needsOf(timeline, action)), names(timeline, usersOf(timeline, action))];
  assert.deepEqual(edges(0), [[], ["0SEND_F0", "0B0"]]); // 0F0
  assert.deepEqual(edges(1), [["0F0"], ["1F0"]]); // 0SEND_F0
  assert.deepEqual(edges(7), [["0SEND_F0"], ["1B0"]]); // 1F0
  assert.deepEqual(edges(4), [["1SEND_B0", "0F0"], []]); // 0B0
  assert.deepEqual(edges(5), [["1SEND_B1", "0F1"], ["0STEP"]]); // 0B1 completes the gradient
  assert.deepEqual(edges(6), [["0B1"], []]); // 0STEP
  // Needs and users are the same arrows, seen from both ends.
  for (let action = 0; action < timeline.numActions; action++) {
    for (const other of needsOf(timeline, action)) assert.ok(usersOf(timeline, other).includes(action));
  }
});

test("the tooltip of an action", () => {
  const timeline = model();
  assert.equal(actionTitle(timeline, 7), "1F0: forward of stage 1, micro-batch 0 on d1");
  assert.equal(actionTitle(timeline, 1), "0SEND_F0: activations of stage 0, micro-batch 0 from d0 to d1");
  assert.deepEqual(actionLines(timeline, 0, null), [
    ["time", "0 s to 2.00 s"],
    ["duration", "2.00 s"],
    ["memory", "1 B of 20 B (5.0 %)"],
    ["layers", "a"],
    ["needed by", "0SEND_F0 (d0 → d1), 0B0 (d0)"],
  ]);
  assert.deepEqual(actionLines(timeline, 1, null)[2], ["payload", "4 B, 1 B/s"]);
});

test("the error of an action is measured against predicted", () => {
  const [predicted, slow] = [model(), model({ origin: "measured", unit: 1.5 }, 1)];
  const line = ["measured", "3.00 s, predicted 2.00 s (+50.0 %)"];
  for (const lines of [actionLines(slow, 0, predicted), actionLines(predicted, 0, slow)]) {
    assert.deepEqual(lines[1], line);
    assert.ok(!lines.some(([name]) => name === "duration")); // which would repeat it
  }
});

test("values of a run that were not measured are marked as predicted or unknown", () => {
  const timeline = model({ origin: "measured" });
  const line = (action, name) => actionLines(timeline, action, null).find(([key]) => key === name)[1];
  assert.equal(line(0, "duration"), "2.00 s");
  assert.equal(line(0, "memory"), "1 B of 20 B (5.0 %), predicted");
  assert.equal(line(1, "duration"), "at most 3.00 s");
  assert.equal(line(1, "payload"), "4 B, predicted");
  timeline.end[1] = timeline.start[1];
  assert.equal(line(1, "duration"), "unknown (no device waited for it)");
  const both = ["measured", "unknown (no device waited for it), predicted 3.00 s"];
  assert.deepEqual(actionLines(timeline, 1, model())[1], both);
});

test("what is under the pointer", () => {
  const timeline = model();
  const { jobs } = timeline.tracks[0];
  assert.equal(actionAt(timeline, jobs, 1, 0), 0);
  assert.equal(actionAt(timeline, jobs, 6, 0), -1);
  assert.equal(actionAt(timeline, jobs, 4.4, 0.5), 2);
  const { rows } = makeLayout([timeline], { open: new Set(["0.0"]) });
  const row = rows.find((item) => item.type === "device");
  assert.equal(hitInRow(row, 3, row.barY, 0.1).action, 2);
  assert.equal(hitInRow(row, 6, row.barY, 0.1).gap, 0);
  assert.equal(hitInRow(rows[0], 3, 0, 0.1), null);
  const link = rows.find((item) => item.type === "link");
  assert.equal(hitInRow(link, 3, link.barY + 1, 0.1).action, 1);
  assert.equal(hitInRow(link, 4.5, link.barY + 12, 0.1).action, 3);
  assert.equal(hitInRow(link, 10, link.barY + 1, 0.1), null);
});

test("neighbours on a row are jobs and the gaps between them", () => {
  const timeline = model();
  const walk = [];
  for (let item = { type: "action", model: timeline, action: 0 }; item; item = neighbour(item, 1)) {
    walk.push(item.type === "gap" ? `gap ${item.gap}` : actionName(timeline, item.action));
    assert.ok(walk.length < 20);
  }
  assert.deepEqual(walk, ["0F0", "0F1", "gap 0", "0B0", "gap 1", "0B1", "0STEP"]);
  const back = [];
  for (let item = { type: "gap", model: timeline, gap: 3 }; item; item = neighbour(item, -1)) {
    back.push(item.type === "gap" ? `gap ${item.gap}` : actionName(timeline, item.action));
  }
  assert.deepEqual(back, ["gap 3", "1STEP", "1B1", "1F1", "1B0", "1F0", "gap 2"]);
});

test("a device's row as a list", () => {
  const timeline = model();
  const items = deviceItems(timeline, 1).map((item) => (item.type === "gap" ? "gap" : actionName(timeline, item.action)));
  assert.deepEqual(items, ["gap", "1F0", "1B0", "1F1", "1B1", "1STEP", "gap"]);
});
