import assert from "node:assert/strict";
import { test } from "node:test";

import { byHosts } from "../../src/penstock/report/html/app/cluster/hosts.mjs";
import { clusterLayout, linkThickness, spaced } from "../../src/penstock/report/html/app/cluster/layout.mjs";
import { arrowHead, linkRoutes } from "../../src/penstock/report/html/app/cluster/links.mjs";
import { hasParts, stageLabel, stageLabels, stagesOf } from "../../src/penstock/report/html/app/cluster/stages.mjs";

test("a large cluster is drawn host by host", () => {
  const cluster = {
    hosts: [{ name: "a" }, { name: "b" }, { name: "empty" }],
    between: { bandwidth: 1 },
    devices: [
      { name: "a0", host: 0, kind: "x" },
      { name: "a1", host: 0, kind: "y" },
      { name: "b0", host: 1, kind: "x" },
    ],
  };
  const link = (source, target, bytes) => ({ source, target, bytes, bandwidth: 5, latency: 0 });
  const grouped = byHosts(
    cluster,
    [link(0, 1, 7), link(0, 2, 3), link(1, 2, 4), link(2, 0, 1)],
    new Map([["a1", { text: "stage 0", short: "stage 0" }]]),
  );
  assert.deepEqual(
    grouped.cluster.devices.map((device) => [device.name, device.kind]),
    [
      ["a", "1 device of kind x, 1 device of kind y"],
      ["b", "1 device of kind x"],
    ],
  );
  assert.deepEqual(
    grouped.links.map(({ source, target, bytes }) => [source, target, bytes]),
    [
      [0, 1, 7],
      [1, 0, 1],
    ],
  );
  assert.deepEqual([...grouped.labels], [["a", { text: "1 used", short: "1 used" }]]);
});

test("devices on the picture of a cluster do not overlap, at any width", () => {
  const cluster = {
    hosts: [{ name: "a" }, { name: "empty" }, { name: "b" }],
    devices: Array.from({ length: 21 }, (_, number) => ({ name: `d${number}`, host: number < 16 ? 0 : 2 })),
  };
  for (const width of [200, 390, 800, 2000]) {
    const { devices, hosts } = clusterLayout(cluster, width);
    assert.equal(hosts.length, 2);
    const apart = (one, other) =>
      one.x + one.width <= other.x ||
      other.x + other.width <= one.x ||
      one.y + one.height <= other.y ||
      other.y + other.height <= one.y;
    devices.forEach((one, index) => devices.slice(0, index).forEach((other) => assert.ok(apart(one, other))));
    assert.ok(apart(hosts[0], hosts[1]));
  }
  assert.ok(linkThickness(100, 1, 100) > linkThickness(10, 1, 100));
  assert.equal(linkThickness(5, 5, 5), linkThickness(null, 1, 2));
});

test("labels of links take a free spot, or are left out", () => {
  const boxes = [
    { x: 0, y: 0, width: 10, height: 10 },
    { x: 100, y: 0, width: 10, height: 10 },
  ];
  const labels = [
    { name: "first", spots: [[55, 0]] },
    { name: "on the first", spots: [[60, 5]] },
    {
      name: "moved",
      spots: [
        [60, 5],
        [60, 20],
      ],
    },
    { name: "on a box", spots: [[0, 5]] },
    { name: "nowhere", spots: [] },
    { name: "last", spots: [[200, 0]] },
  ];
  assert.deepEqual(
    spaced(labels, boxes).map(({ name, middle }) => [name, ...middle]),
    [
      ["first", 55, 0],
      ["moved", 60, 20],
      ["last", 200, 0],
    ],
  );
});

// Four hosts of four: a pipeline through all, both ways, and rings over each host and over all first devices.
const BUSY = {
  hosts: ["a", "b", "c", "d"].map((name) => ({ name })),
  devices: Array.from({ length: 16 }, (_, number) => ({ name: `d${number}`, host: Math.floor(number / 4) })),
};
const both = (source, target) => [
  { source, target },
  { source: target, target: source },
];
const BUSY_LINKS = [
  ...Array.from({ length: 15 }, (_, number) => both(number, number + 1)).flat(),
  ...[0, 4, 8, 12].flatMap((first) => both(first, first + 3)),
  ...[0, 4, 8].flatMap((first) => both(first, first + 4)),
  ...both(0, 12),
  ...both(1, 14),
];

test("no two links overlap, at any width", () => {
  for (const width of [300, 390, 800, 1280, 2600]) {
    const layout = clusterLayout(BUSY, width, BUSY_LINKS);
    const routes = linkRoutes(layout, BUSY_LINKS);
    const flat = routes.flatMap(({ points }, link) =>
      points.slice(1).flatMap(([x, y], index) => {
        const [before, level] = points[index];
        return level === y ? [{ link, y, left: Math.min(x, before), right: Math.max(x, before) }] : [];
      }),
    );
    flat.forEach((one, index) =>
      flat.slice(0, index).forEach((other) => {
        if (one.link === other.link || Math.abs(one.y - other.y) >= 9) return;
        assert.ok(one.right <= other.left || other.right <= one.left, JSON.stringify([width, one, other]));
      }),
    );
    // Each has its own port, and none crosses the box of another device.
    const ends = routes.flatMap(({ points }) => [points[0], points[points.length - 1]]);
    assert.equal(new Set(ends.map(String)).size, ends.length);
    for (const { y, left, right } of flat) {
      const inside = layout.devices.some(
        (box) => y > box.y && y < box.y + box.height && left < box.x + box.width && right > box.x,
      );
      assert.ok(!inside);
    }
    for (const { points } of routes) {
      assert.ok(points.every(([x, y]) => x >= 0 && x <= layout.width && y >= 0 && y <= layout.height));
    }
  }
});

test("links to the right go above, those to the left below", () => {
  const cluster = { hosts: [{ name: "a" }], devices: [0, 1].map((number) => ({ name: `d${number}`, host: 0 })) };
  const layout = clusterLayout(cluster, 800, both(0, 1));
  const [there, back] = linkRoutes(layout, both(0, 1));
  assert.ok(there.spots[0][1] < layout.devices[0].y);
  assert.ok(back.spots[0][1] > layout.devices[0].y + layout.devices[0].height);
});

test("there and back each have a label, and an arrow at the end", () => {
  // One below the other, as where the window is narrow: in one host, and in two.
  for (const numHosts of [1, 2]) {
    const cluster = {
      hosts: ["a", "b"].slice(0, numHosts).map((name) => ({ name })),
      devices: [0, 1].map((number) => ({ name: `d${number}`, host: number % numHosts })),
    };
    const layout = clusterLayout(cluster, 160, both(0, 1));
    const [upper, lower] = layout.devices;
    assert.ok(upper.y + upper.height < lower.y);
    const routes = linkRoutes(layout, both(0, 1));
    assert.equal(spaced(routes, layout.devices).length, 2);
    const tips = routes.map(({ points }) => arrowHead(points, 2).match(/^M(\S+) (\S+)l-4 (-?7)h8z$/).slice(2).map(Number));
    // Down to the lower one, up to the upper one.
    assert.deepEqual(tips, [
      [lower.y, -7],
      [upper.y + upper.height, 7],
    ]);
  }
});

test("boxes name their stages, shortened to their width", () => {
  const on = (...names) => names.map((name) => [name, 1]);
  const stages = stagesOf({
    stages: [
      { forward: on("a"), backward: on("b") },
      { forward: on("b"), backward: on("b") },
      { forward: on("b"), backward: on("c") },
    ],
  });
  assert.deepEqual(
    [...stageLabels(stages)].map(([name, { text }]) => [name, text]),
    [
      ["a", "stage 0F"],
      ["b", "stages 0B, 1, 2F"],
      ["c", "stage 2B"],
    ],
  );
  assert.ok(hasParts(stages));
  const whole = (...numbers) => numbers.map((number) => ({ number, part: "" }));
  assert.ok(!hasParts(new Map([["B", whole(0, 1)]])));
  assert.deepEqual(
    [whole(12), whole(0, 3), whole(0, 3, 4, 7), stages.get("b"), whole(0, 8, 16, 24)].map(
      (own) => stageLabel(own).short,
    ),
    ["stage 12", "stages 0, 3", "st. 0, 3, 4, 7", "st. 0B, 1, 2F", "4 stages"],
  );
});
