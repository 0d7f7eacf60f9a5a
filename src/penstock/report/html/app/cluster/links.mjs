// How links go on the picture of a cluster, such that no two of them lie on each other.
//
// In a row of devices, links to the right go above it and those to the left below, each on a level of its own where
// others are on the way: short ones near the devices, long ones over them. Between rows each has a track of its own, and
// those that pass rows go round on the right.

import { isFar, makePorts, sideOf, spanOf } from "./ports.mjs";

export const LEVEL_STEP = 17; // pixels from one level or track to the next
const BUS_STEP = 9; // and from one that goes round to the next
const MOST_LEVELS = 12; // of more, the last share one
const CORNER = 8;
export const LABEL_WIDTH = 54;

// What the links need, before it is known how high anything is: `ports`; for those in a row a level, and how many levels
// each row has `above` and `below`; for the others their tracks behind rows, and how many each row has behind it; and how
// many go round.
export function planLinks(devices, links) {
  const ports = makePorts(devices, links);
  const found = { ports, levels: new Map(), tracks: links.map(() => []), buses: new Map(), numBuses: 0 };
  found.rows = Array.from({ length: 1 + Math.max(0, ...devices.map(({ row }) => row)) }, () => ({
    above: 0,
    below: 0,
    behind: 0,
  }));
  const ends = links.map(({ source, target }) => [devices[source], devices[target]]);
  planRows(found, ends);
  planBuses(found, ends);
  planTracks(found, ends);
  return found;
}

function planRows({ levels, rows }, ends) {
  const order = ends.flatMap(([source, target], place) => (source.row === target.row ? [place] : []));
  order.sort((one, other) => spanOf(...ends[one]) - spanOf(...ends[other]));
  const taken = new Map();
  for (const place of order) {
    const [source, target] = ends[place];
    const side = sideOf(source, target);
    const key = `${source.row} ${side}`;
    const run = { left: Math.min(source.x, target.x), right: Math.max(source.x, target.x) };
    const others = taken.get(key) ?? [];
    const under = others.filter((other) => overlap(run, other)).map((other) => other.level);
    run.level = Math.min(MOST_LEVELS, 1 + Math.max(0, ...under));
    taken.set(key, [...others, run]);
    levels.set(place, run.level);
    rows[source.row][side] = Math.max(rows[source.row][side], run.level);
  }
}

const overlap = (one, other) => one.left < other.right && other.left < one.right;

// The lowest number that nothing on the way has.
function freeNumber(run, others) {
  const used = new Set(others.filter((other) => overlap(run, other)).map((other) => other.number));
  let number = 0;
  while (used.has(number)) number++;
  return Math.min(number, MOST_LEVELS - 1);
}

function planBuses(found, ends) {
  const taken = [];
  ends.forEach(([source, target], place) => {
    if (!isFar(source, target)) return;
    const run = { left: Math.min(source.row, target.row), right: Math.max(source.row, target.row) };
    run.number = freeNumber(run, taken);
    taken.push(run);
    found.buses.set(place, run.number);
    found.numBuses = Math.max(found.numBuses, run.number + 1);
  });
}

function planTracks({ ports, tracks, buses, rows }, ends) {
  const runs = [];
  ends.forEach(([source, target], place) => {
    if (source.row === target.row) return;
    const [from, to] = ports[place];
    const down = target.row > source.row;
    const [leaving, arriving] = [source.row - (down ? 0 : 1), target.row - (down ? 1 : 0)];
    if (buses.has(place)) {
      runs.push({ place, end: 0, row: leaving, left: from, right: Infinity });
      runs.push({ place, end: 1, row: arriving, left: to, right: Infinity });
    } else {
      // Wide enough for its label.
      const half = Math.max(LABEL_WIDTH, Math.abs(to - from)) / 2;
      runs.push({ place, end: 0, row: leaving, left: (from + to) / 2 - half, right: (from + to) / 2 + half });
    }
  });
  runs.sort((one, other) => one.right - one.left - (other.right - other.left) || one.left - other.left);
  const taken = rows.map(() => []);
  for (const run of runs) {
    run.number = freeNumber(run, taken[run.row]);
    taken[run.row].push(run);
    tracks[run.place][run.end] = run;
    rows[run.row].behind = Math.max(rows[run.row].behind, run.number + 1);
  }
}

export const busWidth = (numBuses) => (numBuses ? 14 + BUS_STEP * numBuses : 0);

// For each link its path, and where its label may go, the best place first.
export function linkRoutes(layout, links) {
  const { devices, spaces, plan, right } = layout;
  const trackY = ({ row, number }) => spaces[row].bottom + LEVEL_STEP * (number + 0.75);
  return links.map((link, place) => {
    const [source, target] = [devices[link.source], devices[link.target]];
    const [from, to] = plan.ports[place];
    if (source.row === target.row) {
      const above = sideOf(source, target) === "above";
      const edge = above ? source.y : source.y + source.height;
      const level = edge + (above ? -1 : 1) * LEVEL_STEP * plan.levels.get(place);
      return route([from, edge], [from, level], [to, level], [to, edge]);
    }
    const down = target.row > source.row;
    const leave = [from, down ? source.y + source.height : source.y];
    const arrive = [to, down ? target.y : target.y + target.height];
    const [out, back] = plan.tracks[place].map(trackY);
    if (!plan.buses.has(place)) return route(leave, [from, out], [to, out], arrive);
    const x = right + 14 + BUS_STEP * plan.buses.get(place);
    return route(leave, [from, out], [x, out], [x, back], [to, back], arrive);
  });
}

// A line along these points with round corners.
function route(...points) {
  const parts = [`M${points[0].join(" ")}`];
  for (let place = 1; place < points.length - 1; place++) {
    const [before, corner, after] = points.slice(place - 1, place + 2);
    const round = Math.min(CORNER, lengthOf(before, corner) / 2, lengthOf(corner, after) / 2);
    parts.push(`L${towards(corner, before, round)} Q${corner.join(" ")} ${towards(corner, after, round)}`);
  }
  parts.push(`L${points[points.length - 1].join(" ")}`);
  const spots = points.slice(1).flatMap(([x, y], place) => {
    const [before, level] = points[place];
    return level === y ? [0.5, 0.3, 0.7].map((part) => [before + part * (x - before), y]) : [];
  });
  return { path: parts.join(" "), points, spots };
}

// A triangle at the end of a line, which is upright there.
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
