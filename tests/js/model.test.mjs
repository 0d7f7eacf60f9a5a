import assert from "node:assert/strict";
import { test } from "node:test";

import { model } from "./made.mjs";
import {
  criticalPath,
  loadOf,
  microbatchOf,
  peerOf,
  subLanes,
  trafficOf,
} from "../../src/penstock/report/html/app/data/timeline_model.mjs";
import { actionName, gapAt, gapWords, partsOf } from "../../src/penstock/report/html/app/data/gaps.mjs";
import { REASON } from "../../src/penstock/report/html/app/data/action_kinds.mjs";
import { deviceItems } from "../../src/penstock/report/html/app/timeline/items.mjs";
import { actionLines, actionTitle } from "../../src/penstock/report/html/app/data/action_text.mjs";
import { needsOf, usersOf } from "../../src/penstock/report/html/app/data/dependencies.mjs";
import { actionAt, hitInRow, neighbour } from "../../src/penstock/report/html/app/interaction/hits.mjs";
import { makeLayout } from "../../src/penstock/report/html/app/timeline/layout.mjs";

const names = (found, actions) => Array.from(actions, (action) => actionName(found, action));

test("rows of jobs and of links", () => {
  const found = model();
  assert.deepEqual(names(found, found.tracks[0].jobs), ["0F0", "0F1", "0B0", "0B1", "0STEP"]);
  assert.deepEqual(
    found.tracks[0].lanes.map((lane) => [lane.target, names(found, lane.actions)]),
    [[1, ["0SEND_F0", "0SEND_F1"]]],
  );
  assert.equal(found.total, 18);
  assert.equal(peerOf(found, 1), 1);
  assert.equal(microbatchOf(found, 6), -1);
});

test("what overlaps on a link gets a lane of its own", () => {
  // The latency of the first still runs when the second begins.
  const found = subLanes([0, 1, 2], [2, 4, 7], [5, 7, 9]);
  assert.deepEqual([...found.lane], [0, 1, 0]);
  assert.equal(found.numLanes, 2);
});

test("the critical path goes from cause to cause", () => {
  const found = model();
  assert.deepEqual(names(found, criticalPath(found)), [
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
  const found = model();
  assert.deepEqual([...loadOf(found, 0)], [4, 0, 0, 0, 4, 0]);
  assert.deepEqual(
    [...trafficOf(found)],
    [
      ['["d0","d1"]', 8],
      ['["d1","d0"]', 8],
    ],
  );
  const ringed = model({ rings: [{ devices: ["d0", "d1"], bytes: 5 }] });
  assert.deepEqual([...trafficOf(ringed).values()], [13, 13]);
});

test("gaps are found by time, and told in words", () => {
  const found = model();
  assert.deepEqual(
    [3.9, 4, 11.9, 12, 14, 17].map((time) => gapAt(found, 0, time)),
    [-1, 0, 0, -1, 1, -1],
  );
  assert.deepEqual(
    [0, 5, 13].map((time) => gapAt(found, 1, time)),
    [2, -1, 3],
  );
  assert.deepEqual(gapWords(found, 0), {
    title: "d0 waited 8.00 s before 0B0",
    reason: "It waited for gradients 1SEND_B0 from d1, of which 3.00 s transfer.",
    lines: [
      { seconds: 3, text: "1SEND_B0 was on its way" },
      { seconds: 4, text: "d1 was running 1B0, and 1 job before it" },
      { seconds: 1, text: "0SEND_F0 was on its way" },
    ],
  });
  assert.deepEqual(gapWords(found, 3), {
    title: "d1 has nothing left to do for 5.00 s",
    reason: "The iteration ends with 0B1 on d0.",
    lines: [],
  });
  assert.match(gapWords(model({ origin: "measured" }), 0).reason, /of which at most 3\.00 s transfer/);
  for (let gap = 0; gap < 4; gap++) {
    const sum = partsOf(found, gap).reduce((total, part) => total + part.seconds, 0);
    assert.equal(sum, [8, 2, 5, 5][gap]);
  }
});

test("short parts of a measured gap that have no reason do not hide the others", () => {
  // The first gap of d0 ends, and has in its middle, a tick of 0.01 for which there is no reason.
  const found = model({ origin: "measured" });
  Object.assign(found, {
    unit: 0.01,
    gapStart: [400, ...found.gapStart.slice(1)],
    gapParts: [4, ...found.gapParts.slice(1)],
    partBegins: [0, 4, 5, 7, 8],
    partReason: [REASON.WORK, REASON.UNKNOWN, REASON.TRANSFER, REASON.UNKNOWN],
    partEnd: [500, 501, 799, 800],
    partAction: [9, 0, 10, 0],
    partNum: [1, 1, 1, 1],
  });
  const words = gapWords(found, 0);
  assert.equal(words.reason, "It waited for gradients 1SEND_B0 from d1, of which at most 2.98 s transfer.");
  const unknown = "nothing in the program held it back; the runtime or the machine took this time";
  assert.deepEqual(
    words.lines.map(({ seconds, text }) => [seconds.toFixed(2), text]),
    [
      ["2.98", "1SEND_B0 was on its way"],
      ["1.00", "d1 was running 1B0"],
      ["0.02", `in between: ${unknown}`],
    ],
  );
  // A long one is a reason of its own, and one that is all of a gap is told.
  found.partEnd = [500, 600, 799, 800];
  assert.deepEqual(gapWords(found, 0).lines[1].text, unknown);
  Object.assign(found, { partBegins: [0, 1, 2, 4, 5], partReason: [REASON.UNKNOWN], partEnd: [800] });
  assert.deepEqual(
    gapWords(found, 0).lines.map(({ text }) => text),
    [unknown],
  );
});

test("what an action needed, and what needed it", () => {
  const found = model();
  const told = (action) => [names(found, needsOf(found, action)), names(found, usersOf(found, action))];
  assert.deepEqual(told(0), [[], ["0B0", "0SEND_F0"]]); // 0F0
  assert.deepEqual(told(1), [["0F0"], ["1F0"]]); // 0SEND_F0
  assert.deepEqual(told(7), [["0SEND_F0"], ["1B0"]]); // 1F0
  assert.deepEqual(told(4), [["1SEND_B0", "0F0"], []]); // 0B0
  assert.deepEqual(told(5), [["1SEND_B1", "0F1"], ["0STEP"]]); // 0B1 completes the gradients
  assert.deepEqual(told(6), [["0B1"], []]); // 0STEP
  // Needs and users are the same arrows, seen from both ends.
  for (let action = 0; action < found.numActions; action++) {
    for (const other of needsOf(found, action)) assert.ok(usersOf(found, other).includes(action));
  }
});

test("what is said about an action", () => {
  const found = model();
  assert.equal(actionTitle(found, 7), "1F0: forward of stage 1, micro-batch 0 on d1");
  assert.equal(actionTitle(found, 1), "0SEND_F0: activations of stage 0, micro-batch 0 from d0 to d1");
  assert.deepEqual(actionLines(found, 0, null), [
    ["time", "0 s to 2.00 s"],
    ["takes", "2.00 s"],
    ["memory", "1 B of 20 B (5.0 %)"],
    ["units", "a"],
    ["needed by", "0B0 (d0), 0SEND_F0 (d0 → d1)"],
  ]);
  assert.deepEqual(actionLines(found, 1, null)[2], ["moves", "4 B, 1 B/s"]);
});

test("the error of an action is measured against predicted", () => {
  const [predicted, slow] = [model(), model({ origin: "measured", unit: 1.5 }, 1)];
  const line = ["measured", "3.00 s, predicted 2.00 s (+50.0 %)"];
  for (const lines of [actionLines(slow, 0, predicted), actionLines(predicted, 0, slow)]) {
    assert.deepEqual(lines[1], line);
    assert.ok(!lines.some(([name]) => name === "takes")); // that would be said twice
  }
});

test("of a run, what was not measured is said to be predicted, and nothing is said of what nobody saw", () => {
  const found = model({ origin: "measured" });
  const line = (action, name) => actionLines(found, action, null).find(([key]) => key === name)[1];
  assert.equal(line(0, "takes"), "2.00 s");
  assert.equal(line(0, "memory"), "1 B of 20 B (5.0 %), predicted");
  assert.equal(line(1, "takes"), "at most 3.00 s");
  assert.equal(line(1, "moves"), "4 B, predicted");
  found.end[1] = found.start[1];
  assert.equal(line(1, "takes"), "not known (nothing waited for it)");
  const both = ["measured", "not known (nothing waited for it), predicted 3.00 s"];
  assert.deepEqual(actionLines(found, 1, model())[1], both);
});

test("what is under the pointer", () => {
  const found = model();
  const { jobs } = found.tracks[0];
  assert.equal(actionAt(found, jobs, 1, 0), 0);
  assert.equal(actionAt(found, jobs, 6, 0), -1);
  assert.equal(actionAt(found, jobs, 4.4, 0.5), 2);
  const { rows } = makeLayout([found], { open: new Set(["0.0"]) });
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
  const found = model();
  const walk = [];
  for (let item = { type: "action", model: found, action: 0 }; item; item = neighbour(item, 1)) {
    walk.push(item.type === "gap" ? `gap ${item.gap}` : actionName(found, item.action));
    assert.ok(walk.length < 20);
  }
  assert.deepEqual(walk, ["0F0", "0F1", "gap 0", "0B0", "gap 1", "0B1", "0STEP"]);
  const back = [];
  for (let item = { type: "gap", model: found, gap: 3 }; item; item = neighbour(item, -1)) {
    back.push(item.type === "gap" ? `gap ${item.gap}` : actionName(found, item.action));
  }
  assert.deepEqual(back, ["gap 3", "1STEP", "1B1", "1F1", "1B0", "1F0", "gap 2"]);
});

test("a device's row as a list", () => {
  const found = model();
  const told = deviceItems(found, 1).map((item) => (item.type === "gap" ? "gap" : actionName(found, item.action)));
  assert.deepEqual(told, ["gap", "1F0", "1B0", "1F1", "1B1", "1STEP", "gap"]);
});
