import assert from "node:assert/strict";
import { test } from "node:test";

import { model } from "./sample_timeline.mjs";
import { roundStep, shifted, ticks, zoomed } from "../../src/penstock/report/html/app/timeline/scale.mjs";
import { isCrowded, memoryColumns, mixColumns, visibleRange } from "../../src/penstock/report/html/app/timeline/detail.mjs";
import { makeLayout, rowAt, rowOf } from "../../src/penstock/report/html/app/timeline/layout.mjs";
import {
  actionColours,
  deviceColour,
  inkOn,
  orderColour,
  parse,
  ratioColour,
} from "../../src/penstock/report/html/app/ui/colours.mjs";
import { timelineSvg } from "../../src/penstock/report/html/app/timeline/svg_export.mjs";
import { SvgSurface, escaped } from "../../src/penstock/report/html/app/timeline/surface.mjs";
import { showBytes, showSeconds, shortened, withUnits } from "../../src/penstock/report/html/app/data/format.mjs";
import { stripBlocks, stripEdges, blockText } from "../../src/penstock/report/html/app/data/layer_strip.mjs";

const scene = (timeline, changes = {}) => ({
  layout: makeLayout([timeline], { open: new Set(["0.0"]) }),
  view: { from: 0, to: 18 },
  total: 18,
  left: 100,
  width: 1000,
  dark: false,
  by: "kind",
  partnerOf: () => null,
  path: null,
  lit: null,
  ...changes,
});

test("zooming keeps the time under the pointer, and stays within the whole", () => {
  assert.deepEqual(zoomed({ from: 0, to: 10 }, 2, 5, 10), { from: 2.5, to: 7.5 });
  assert.deepEqual(zoomed({ from: 0, to: 10 }, 2, 0, 10), { from: 0, to: 5 });
  assert.deepEqual(zoomed({ from: 2, to: 4 }, 0.01, 3, 10), { from: 0, to: 10 });
  const deep = zoomed({ from: 2, to: 4 }, 1e12, 3, 10);
  assert.ok(Math.abs(deep.to - deep.from - 1e-5) < 1e-12);
  assert.deepEqual(shifted({ from: 2, to: 4 }, 100, 10), { from: 8, to: 10 });
  assert.deepEqual(shifted({ from: 2, to: 4 }, -100, 10), { from: 0, to: 2 });
});

test("marks are at round times, far enough apart", () => {
  assert.deepEqual(
    ticks({ from: 0, to: 0.25 }, 500, 80).map((tick) => [tick.label, Math.round(tick.x)]),
    [
      ["0 ms", 0],
      ["50", 100],
      ["100", 200],
      ["150", 300],
      ["200", 400],
      ["250", 500],
    ],
  );
  assert.deepEqual(
    ticks({ from: 1.1, to: 1.2 }, 300, 80).map((tick) => tick.label),
    ["1.10 s", "1.15", "1.20"],
  );
  assert.deepEqual(ticks({ from: 0, to: 0 }, 300, 80), []);
  assert.deepEqual([0.9, 1, 1.1, 3, 7, 0.02].map(roundStep), [1, 1, 2, 5, 10, 0.02]);
});

test("only what can be seen is drawn", () => {
  const timeline = model();
  const { jobs } = timeline.tracks[0];
  assert.deepEqual(visibleRange(jobs, timeline.start, timeline.end, 0, 18), [0, 4]);
  assert.deepEqual(visibleRange(jobs, timeline.start, timeline.end, 3, 12.5), [1, 3]);
  assert.deepEqual(visibleRange(jobs, timeline.start, timeline.end, 5, 6), [2, 2]);
  assert.equal(isCrowded(60, 10), false);
  assert.equal(isCrowded(600, 1000), true);
  assert.equal(isCrowded(300, 1000), false);
});

test("small actions have the mean colour of their column", () => {
  const timeline = model();
  const { jobs } = timeline.tracks[0];
  const colour = (action) => (timeline.microbatch[action] === 1 ? "#ff0000" : "#0000ff");
  // Two columns of 9 seconds: F0 2, F1 2 of the first; B0 2, B1 2 of the second.
  const pixels = mixColumns(jobs, [0, jobs.length], timeline, { from: 0, to: 18 }, 2, colour);
  assert.deepEqual([...pixels], [128, 0, 128, 113, 128, 0, 128, 113]);
});

test("the memory strip shows the most of every column", () => {
  const timeline = model();
  // Jobs of d0 use 1 to 5 bytes while they run, and one more after.
  const columns = memoryColumns(timeline, timeline.tracks[0], { from: 0, to: 18 }, 18, 2);
  assert.deepEqual([...columns], [1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4]);
  const late = memoryColumns(timeline, timeline.tracks[1], { from: 0, to: 18 }, 18, 7);
  assert.deepEqual([...late.slice(0, 6)], [7, 7, 7, 7, 7, 6]); // static memory until 5, then its first action
});

test("rows lie under each other without holes, and are found by their height", () => {
  const timeline = model();
  for (const options of [{}, { open: new Set(["0.0", "0.1"]) }, { memory: false, ghosts: new Map([[0, timeline]]) }]) {
    const { rows, height } = makeLayout([timeline], options);
    for (let index = 1; index < rows.length; index++)
      assert.ok(rows[index].y >= rows[index - 1].y + rows[index - 1].height);
    const layout = makeLayout([timeline], options);
    for (const row of layout.rows) assert.equal(rowAt(layout, row.y + row.height / 2), row);
    assert.equal(rowAt(layout, height + 1), null);
    assert.ok(height >= rows[rows.length - 1].y + rows[rows.length - 1].height);
  }
  const layout = makeLayout([timeline], { open: new Set(["0.0"]) });
  assert.equal(rowOf(layout, timeline, 0).type, "device");
  assert.equal(rowOf(layout, timeline, 1).type, "link");
  assert.equal(rowOf(layout, timeline, 9), undefined);
});

test("the picture has a rectangle for every action, at its position", () => {
  const timeline = model();
  const text = timelineSvg(scene(timeline));
  // 900 pixels for 18 seconds: 0F0 takes 100 of them.
  assert.match(text, /<rect x="100" y="[\d.]+" width="99.3" height="20" fill="#0072b2"\/>/);
  assert.equal(text.match(/fill="#0072b2"/g).length, 4 + 1); // four forwards, and the legend
  assert.match(text, />steady 8\.00 s</);
  assert.match(text, />by hand</);
  assert.match(text, /→ d1/);
  assert.match(timelineSvg(scene(timeline, { dark: true })), /fill="#161b21"/);
});

test("names are text in SVG files too", () => {
  const devices = [
    { name: "<script>", limit: null, static: null },
    { name: "a&b\u0001", limit: null, static: null },
  ];
  const text = timelineSvg(scene(model({ name: "</svg><script>alert(1)</script>", devices })));
  assert.ok(!text.includes("<script"));
  assert.match(text, /&lt;script&gt;/);
  assert.equal(escaped('a&b\u0001"<>'), "a&amp;b\u25a1&quot;&lt;&gt;");
  assert.equal(text.match(/<g /g).length, text.match(/<\/g>/g).length);
});

test("columns of one colour are one rectangle in SVG", () => {
  const surface = new SvgSurface();
  surface.columns(10, 5, 8, Uint8ClampedArray.from([1, 2, 3, 255, 1, 2, 3, 255, 0, 0, 0, 0, 9, 9, 9, 127]));
  assert.deepEqual(surface.parts, [
    '<rect x="10" y="5" width="2" height="8" fill="rgb(1,2,3)"/>',
    '<rect x="13" y="5" width="1" height="8" fill="rgb(9,9,9)" fill-opacity="0.5"/>',
  ]);
});

test("colours", () => {
  const timeline = model();
  assert.equal(actionColours(timeline, { by: "kind", dark: false })(0), "#0072b2");
  assert.notEqual(actionColours(timeline, { by: "kind", dark: true })(0), "#0072b2");
  const byBatch = actionColours(timeline, { by: "microbatch", dark: false });
  assert.equal(byBatch(0), orderColour(0));
  assert.equal(byBatch(2), orderColour(1));
  const slow = model({ origin: "measured", unit: 2 }, 1);
  assert.equal(actionColours(slow, { by: "error", dark: false, partner: timeline })(0), "#d55e00");
  assert.equal(ratioColour(1, false), "#c3c9cf");
  assert.equal(ratioColour(0.5, false), "#0072b2");
  assert.equal(inkOn("#ffffff"), "#000000");
  assert.equal(inkOn("#0072b2"), "#ffffff");
  assert.equal(new Set(Array.from({ length: 24 }, (_, number) => deviceColour(number))).size, 24);
});

// How light a colour is to the eye, and how it looks without one kind of cones (Viénot and others, 1999).
const seen = (value) => Math.max(0, value) ** (1 / 2.2);
const linear = (colour) => parse(colour).map((value) => (value / 255) ** 2.2);
const without = {
  red: ([r, g, b]) => [0.11238 * r + 0.88762 * g, 0.11238 * r + 0.88762 * g, 0.00401 * r - 0.00401 * g + b],
  green: ([r, g, b]) => [0.29275 * r + 0.70725 * g, 0.29275 * r + 0.70725 * g, -0.02234 * r + 0.02234 * g + b],
};

test("kinds of actions differ in colour without red or green cones", () => {
  for (const dark of [false, true]) {
    const timeline = model();
    const colourOf = actionColours(timeline, { by: "kind", dark });
    const colours = [0, 2, 3, 4].map((kind) => {
      timeline.kind[0] = kind;
      return linear(colourOf(0));
    });
    for (const see of Object.values(without)) {
      for (let one = 0; one < colours.length; one++) {
        for (let other = 0; other < one; other++) {
          const distance = Math.hypot(
            ...see(colours[one]).map((value, part) => seen(value) - seen(see(colours[other])[part])),
          );
          assert.ok(distance > 0.1, `${dark} ${one} ${other}: ${distance}`);
        }
      }
    }
  }
});

test("numbers as the command line shows them", () => {
  assert.deepEqual([0.00123, 5e-6, 0, 12.34, 1234, 9.996e-4, 3e-9].map(showSeconds), [
    "1.23 ms",
    "5.00 us",
    "0 s",
    "12.3 s",
    "1,234 s",
    "1.00 ms",
    "3.00 ns",
  ]);
  assert.deepEqual([40e9, 1536, 0].map(showBytes), ["40.0 GB", "1.54 kB", "0 B"]);
  assert.equal(shortened("host-12.gpu-7", 8), "host…u-7");
  assert.equal(shortened("short", 8), "short");
  assert.equal(withUnits("19.7 % of 3 ms at 2 GB/s, 4 B, 12.5 rows/s"), "19.7\u00a0% of 3\u00a0ms at 2\u00a0GB/s, 4\u00a0B, 12.5\u00a0rows/s");
  assert.equal(withUnits("gpu 0 mused 3 stages"), "gpu 0 mused 3 stages");
});

test("the strip of layers", () => {
  const timeline = model();
  const edges = stripEdges(timeline, 100);
  assert.deepEqual(edges, [0, 50, 100]);
  const shapes = stripBlocks(timeline, edges).map((block) => [block.side, block.device, block.x, block.width]);
  assert.deepEqual(shapes, [
    ["forward", "d0", 0, 50],
    ["forward", "d1", 50, 50],
    ["backward", "d0", 0, 50],
    ["backward", "d1", 50, 50],
  ]);
  assert.equal(
    blockText(timeline, stripBlocks(timeline, edges)[0]),
    "forward of stage 0 on d0: a; 2.00 s per micro-batch on k",
  );
  // Stages side by side on one device are one block; replicas are one under the other.
  const moved = model({
    stages: [
      {
        start: 0,
        stop: 1,
        forward: [["d0", 1]],
        backward: [
          ["d0", 0.5],
          ["d1", 0.5],
        ],
        recompute: false,
      },
      { start: 1, stop: 2, forward: [["d0", 1]], backward: [["d1", 1]], recompute: false },
    ],
  });
  const blocks = stripBlocks(moved, stripEdges(moved, 100));
  assert.deepEqual(
    blocks.map((block) => [block.side, block.device, block.replica, block.numReplicas, block.x, block.width]),
    [
      ["forward", "d0", 0, 1, 0, 100],
      ["backward", "d0", 0, 2, 0, 50],
      ["backward", "d1", 1, 2, 0, 50],
      ["backward", "d1", 0, 1, 50, 50],
    ],
  );
  assert.deepEqual(stripEdges(model({ layers: null }), 100), [0, 50, 100]);
});
