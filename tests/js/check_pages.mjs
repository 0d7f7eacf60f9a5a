// Checks invariants of the data of many pages. Used by tests/report/html/test_page_modules.py: reads a JSON list of
// {content, path} from standard input.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { makeApp } from "../../src/penstock/report/html/app/ui/app.mjs";
import { makeScene } from "../../src/penstock/report/html/app/timeline/scene.mjs";
import { timelineSvg } from "../../src/penstock/report/html/app/timeline/svg_export.mjs";
import { needsOf, usersOf } from "../../src/penstock/report/html/app/data/dependencies.mjs";
import { actionLines, actionTitle } from "../../src/penstock/report/html/app/data/action_text.mjs";
import { gapEnd, gapText, partsOf } from "../../src/penstock/report/html/app/data/gaps.mjs";
import { deviceItems } from "../../src/penstock/report/html/app/timeline/items.mjs";
import { compareRows } from "../../src/penstock/report/html/app/data/comparison_rows.mjs";
import { stripBlocks, stripEdges } from "../../src/penstock/report/html/app/data/layer_strip.mjs";
import { neighbour } from "../../src/penstock/report/html/app/interaction/hits.mjs";

const texts = [];

for (const { content, path } of JSON.parse(readFileSync(0, "utf-8"))) {
  const app = makeApp(content, "");
  const [model] = app.models;
  assert.deepEqual([...model.path], path);
  for (let action = 0; action < model.numActions; action++) {
    for (const other of needsOf(model, action)) {
      assert.ok(usersOf(model, other).includes(action));
      const edge = `${actionTitle(model, action)} needs ${actionTitle(model, other)}`;
      assert.ok(model.end[other] <= model.start[action] + 1, `what is needed comes first: ${edge}`);
    }
    texts.push(actionTitle(model, action), ...actionLines(model, action, null).flat());
  }
  for (let gap = 0; gap < model.gapCount; gap++) {
    const seconds = partsOf(model, gap).reduce((sum, part) => sum + part.seconds, 0);
    assert.ok(
      Math.abs(seconds - (gapEnd(model, gap) - model.gapStart[gap]) * model.unit) < 1e-9 * Math.max(1, model.iteration),
    );
    const { title, reason, lines } = gapText(model, gap);
    texts.push(title, reason, ...lines.map((line) => line.text));
  }
  model.devices.forEach((_, device) => {
    const items = deviceItems(model, device);
    if (!model.tracks[device].jobs.length) return;
    // From the first item of a row, the keyboard reaches the last.
    let item = { ...items[0], model };
    let steps = 1;
    for (let next = neighbour(item, 1); next; next = neighbour(next, 1)) {
      item = next;
      steps++;
      assert.ok(steps <= items.length);
    }
  });
  const devices = model.tracks.map((_, device) => `0.${device}`);
  for (const patch of [
    {},
    { open: devices },
    { critical: true },
    { colour: "microbatch", memory: false },
    { from: app.total / 3, to: app.total / 2 },
  ]) {
    app.update(patch);
    for (const hit of [null, { type: "action", model, action: model.numActions - 1 }]) {
      texts.push(timelineSvg(makeScene(app, { width: 700, height: 0, scroll: 0, dark: false, hit })));
    }
  }
  const blocks = stripBlocks(model, stripEdges(model, 500));
  for (const block of blocks) assert.ok(block.width > 0 && block.x >= 0 && block.x + block.width < 500.001);
  assert.equal(compareRows(content).length, 1);
}

for (const text of texts) assert.doesNotMatch(text, /NaN|undefined|Infinity|null/);
