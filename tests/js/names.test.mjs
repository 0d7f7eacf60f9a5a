import assert from "node:assert/strict";
import { test } from "node:test";

import { model } from "./sample_timeline.mjs";
import { deviceLabels, titleLabels } from "../../src/penstock/report/html/app/timeline/labels.mjs";
import { makeLayout } from "../../src/penstock/report/html/app/timeline/layout.mjs";
import { shortNames } from "../../src/penstock/report/html/app/data/short_names.mjs";
import { SvgSurface } from "../../src/penstock/report/html/app/timeline/surface.mjs";

test("short names are distinct", () => {
  const fits = (most) => (text) => [...text].length <= most;
  const short = (names, most) => shortNames(names, fits(most));
  assert.deepEqual(short(["d0", "d1"], 8), ["d0", "d1"]);
  assert.deepEqual(short(["alpha.gpu-0", "gamma.gpu-1"], 8), ["alph…u-0", "gamm…u-1"]);
  // They differ in the middle: the common part is dropped instead.
  assert.deepEqual(short(["worker-1.gpu-0", "worker-2.gpu-0"], 9), ["…1.gpu-0", "…2.gpu-0"]);
  const racks = ["node-rack1-03.gpu0", "node-rack2-03.gpu0", "node-rack2-04.gpu1"];
  assert.deepEqual(short(racks, 13), ["rack1-03.gpu0", "rack2-03.gpu0", "rack2-04.gpu1"]);
  assert.deepEqual(short(racks, 8), ["1-03.0", "2-03.0", "2-04.1"]);
  // As a last resort they are numbered.
  const alike = [`${"a".repeat(30)}x${"b".repeat(30)}`, `${"a".repeat(30)}y${"b".repeat(30)}`];
  assert.deepEqual(short(alike, 8), ["1", "2"]);
  for (const most of [1, 2, 3, 5, 8, 13]) {
    const names = Array.from({ length: 40 }, (_, number) => `machine-${number >> 3}.rack.device-${number % 8}`);
    assert.equal(new Set(short(names, most)).size, names.length);
  }
  // The same name twice is the same text twice.
  assert.equal(new Set(short(["a-long-name", "a-long-name", "other-long-name"], 6)).size, 2);
});

test("names on a timeline fit their width, and are cached", () => {
  const devices = ["a-host-with-a-name.d0", "a-host-with-a-name.d1"].map((name) => ({ name, limit: null, static: null }));
  const timeline = model({ devices, name: "one run of many" });
  const surface = new SvgSurface();
  const style = { size: 12 };
  const names = deviceLabels(surface, timeline, 60, style);
  assert.equal(new Set(names).size, 2);
  assert.ok(names.every((name) => surface.width(name, style) <= 60));
  assert.equal(deviceLabels(surface, timeline, 60, style), names);
  assert.ok(deviceLabels(surface, timeline, 60, style, "→ ").every((name) => name.startsWith("→ ")));
  const layout = makeLayout([timeline, { ...timeline, number: 1, name: "one run of more" }]);
  const titles = titleLabels(surface, layout, 70, style);
  assert.notEqual(titles.get(0), titles.get(1));
});
