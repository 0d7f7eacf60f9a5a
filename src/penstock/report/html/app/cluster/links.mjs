// The routes of links on a cluster's picture. No two of them overlap.
//
// In a row of devices, links to the right run above it and links to the left below it. Links that would overlap have
// different levels, short ones near the devices. Between rows each link has its own track, and links that skip rows go
// round on the right.

import { isFar, makePorts, sideOf, spanOf } from "./ports.mjs";

export const LEVEL_STEP = 17; // pixels from one level or track to the next
const BUS_STEP = 9; // and between links that go round
const MAX_LEVELS = 12; // further links share the last one
const CORNER = 8;
export const LABEL_WIDTH = 54;

// The plan of the links, before any heights are known: `ports`; levels of links in a row, and the number of levels
// `above` and `below` each row; tracks of the other links, and the number of tracks `behind` each row; and buses, which
// go round.
export function planLinks(devices, links) {
  const ports = makePorts(devices, links);
  const plan = { ports, levels: new Map(), tracks: links.map(() => []), buses: new Map(), numBuses: 0 };
  plan.rows = Array.from({ length: 1 + Math.max(0, ...devices.map(({ row }) => row)) }, () => ({
    above: 0,
    below: 0,
    behind: 0,
  }));
  const ends = links.map(({ source, target }) => [devices[source], devices[target]]);
  planRows(plan, ends);
  planBuses(plan, ends);
  planTracks(plan, ends);
  return plan;
}

function planRows({ levels, rows }, ends) {
  const order = ends.flatMap(([source, target], index) => (source.row === target.row ? [index] : []));
  order.sort((one, other) => spanOf(...ends[one]) - spanOf(...ends[other]));
  const taken = new Map();
  for (const index of order) {
    const [source, target] = ends[index];
    const side = sideOf(source, target);
    const key = `${source.row} ${side}`;
    const run = { left: Math.min(source.x, target.x), right: Math.max(source.x, target.x) };
    const others = taken.get(key) ?? [];
    const under = others.filter((other) => overlap(run, other)).map((other) => other.level);
    run.level = Math.min(MAX_LEVELS, 1 + Math.max(0, ...under));
    taken.set(key, [...others, run]);
    levels.set(index, run.level);
    rows[source.row][side] = Math.max(rows[source.row][side], run.level);
  }
}

const overlap = (one, other) => one.left < other.right && other.left < one.right;

// The lowest number that no overlapping run has.
function freeNumber(run, others) {
  const used = new Set(others.filter((other) => overlap(run, other)).map((other) => other.number));
  let number = 0;
  while (used.has(number)) number++;
  return Math.min(number, MAX_LEVELS - 1);
}

function planBuses(plan, ends) {
  const taken = [];
  ends.forEach(([source, target], index) => {
    if (!isFar(source, target)) return;
    const run = { left: Math.min(source.row, target.row), right: Math.max(source.row, target.row) };
    run.number = freeNumber(run, taken);
    taken.push(run);
    plan.buses.set(index, run.number);
    plan.numBuses = Math.max(plan.numBuses, run.number + 1);
  });
}

function planTracks({ ports, tracks, buses, rows }, ends) {
  const runs = [];
  ends.forEach(([source, target], index) => {
    if (source.row === target.row) return;
    const [from, to] = ports[index];
    const down = target.row > source.row;
    const [leaving, arriving] = [source.row - (down ? 0 : 1), target.row - (down ? 1 : 0)];
    if (buses.has(index)) {
      runs.push({ index, end: 0, row: leaving, left: from, right: Infinity });
      runs.push({ index, end: 1, row: arriving, left: to, right: Infinity });
    } else {
      // Wide enough for its label.
      const half = Math.max(LABEL_WIDTH, Math.abs(to - from)) / 2;
      runs.push({ index, end: 0, row: leaving, left: (from + to) / 2 - half, right: (from + to) / 2 + half });
    }
  });
  runs.sort((one, other) => one.right - one.left - (other.right - other.left) || one.left - other.left);
  const taken = rows.map(() => []);
  for (const run of runs) {
    run.number = freeNumber(run, taken[run.row]);
    taken[run.row].push(run);
    tracks[run.index][run.end] = run;
    rows[run.row].behind = Math.max(rows[run.row].behind, run.number + 1);
  }
}

export const busWidth = (numBuses) => (numBuses ? 14 + BUS_STEP * numBuses : 0);

// For each link its path, and the spots for its label, the best one first.
export function linkRoutes(layout, links) {
  const { devices, spaces, plan, right } = layout;
  const trackY = ({ row, number }) => spaces[row].bottom + LEVEL_STEP * (number + 0.75);
  return links.map((link, index) => {
    const [source, target] = [devices[link.source], devices[link.target]];
    const [from, to] = plan.ports[index];
    if (source.row === target.row) {
      const above = sideOf(source, target) === "above";
      const edge = above ? source.y : source.y + source.height;
      const level = edge + (above ? -1 : 1) * LEVEL_STEP * plan.levels.get(index);
      return route([from, edge], [from, level], [to, level], [to, edge]);
    }
    const down = target.row > source.row;
    const leave = [from, down ? source.y + source.height : source.y];
    const arrive = [to, down ? target.y : target.y + target.height];
    const [out, back] = plan.tracks[index].map(trackY);
    if (!plan.buses.has(index)) return route(leave, [from, out], [to, out], arrive);
    const x = right + 14 + BUS_STEP * plan.buses.get(index);
    return route(leave, [from, out], [x, out], [x, back], [to, back], arrive);
  });
}

// A line through these points with round corners.
function route(...points) {
  const parts = [`M${points[0].join(" ")}`];
  for (let index = 1; index < points.length - 1; index++) {
    const [before, corner, after] = points.slice(index - 1, index + 2);
    const round = Math.min(CORNER, lengthOf(before, corner) / 2, lengthOf(corner, after) / 2);
    parts.push(`L${towards(corner, before, round)} Q${corner.join(" ")} ${towards(corner, after, round)}`);
  }
  parts.push(`L${points[points.length - 1].join(" ")}`);
  const spots = points.slice(1).flatMap(([x, y], index) => {
    const [before, level] = points[index];
    return level === y ? [0.5, 0.3, 0.7].map((part) => [before + part * (x - before), y]) : [];
  });
  return { path: parts.join(" "), points, spots };
}

// A triangle at the end of a line, whose last segment is vertical.
export function arrowHead(points, thickness) {
  const [[, before], [x, y]] = points.slice(-2);
  const half = thickness / 2 + 3;
  return `M${x} ${y}l${-half} ${y > before ? -7 : 7}h${2 * half}z`;
}

const lengthOf = ([x1, y1], [x2, y2]) => Math.abs(x2 - x1) + Math.abs(y2 - y1);

function towards([x1, y1], [x2, y2], size) {
  const whole = lengthOf([x1, y1], [x2, y2]) || 1;
  return `${x1 + ((x2 - x1) * size) / whole} ${y1 + ((y2 - y1) * size) / whole}`;
}
