// The layout of a cluster's picture.

import { LABEL_WIDTH, LEVEL_STEP, busWidth, planLinks } from "./links.mjs";

const DEVICE = { width: 94, height: 46 };
const [GAP, MARGIN, NAME, ROOM] = [28, 16, 22, 12];
export const MAX_DRAWN = 64;

// Hosts side by side as far as they fit, with their devices in rows; in pixels. Each row has room for links around it.
export function clusterLayout(cluster, width, links = []) {
  let [hosts, devices, lines] = arrange(cluster, width);
  let plan = planLinks(devices, links);
  if (plan.numBuses) {
    [hosts, devices, lines] = arrange(cluster, width - busWidth(plan.numBuses));
    plan = planLinks(devices, links);
  }
  const spaces = [];
  let y = 0;
  for (const num of lines) {
    y += NAME;
    for (let row = 0; row < num; row++) {
      const { above, below, behind } = plan.rows[spaces.length];
      const top = y + ROOM + LEVEL_STEP * above;
      const bottom = top + DEVICE.height + ROOM + LEVEL_STEP * below;
      spaces.push({ begin: y, y: top, bottom });
      y = bottom + Math.max(row + 1 < num ? 0 : GAP, LEVEL_STEP * (behind + 0.5));
    }
  }
  const right = Math.max(...hosts.map((host) => host.x + host.width), 1);
  return {
    hosts: hosts.map(({ first, num, ...host }) => {
      const { begin } = spaces[first];
      return { ...host, y: begin, height: spaces[first + num - 1].bottom - begin };
    }),
    devices: devices.map((device) => ({ ...device, y: spaces[device.row].y })),
    spaces,
    plan,
    right,
    width: right + busWidth(plan.numBuses),
    height: spaces[spaces.length - 1].bottom,
  };
}

// From left to right: the position and the row of each host and device, and the number of rows in each line of hosts.
function arrange(cluster, width) {
  const [hosts, devices, lines] = [[], [], [0]];
  let [x, first] = [0, 0];
  cluster.hosts.forEach((_, host) => {
    const numbers = cluster.devices.flatMap((device, number) => (device.host === host ? [number] : []));
    if (!numbers.length) return;
    const fitting = Math.max(1, Math.floor((width - 2 * MARGIN + GAP) / (DEVICE.width + GAP)));
    const columns = Math.min(fitting, numbers.length <= 8 ? numbers.length : Math.ceil(Math.sqrt(numbers.length * 2)));
    const num = Math.ceil(numbers.length / columns);
    const wide = 2 * MARGIN + columns * DEVICE.width + (columns - 1) * GAP;
    if (x > 0 && x + wide > width) {
      first += lines[lines.length - 1];
      lines.push(0);
      x = 0;
    }
    lines[lines.length - 1] = Math.max(lines[lines.length - 1], num);
    hosts.push({ host, x, width: wide, first, num });
    numbers.forEach((number, index) => {
      devices[number] = {
        x: x + MARGIN + (index % columns) * (DEVICE.width + GAP),
        row: first + Math.floor(index / columns),
        ...DEVICE,
      };
    });
    x += wide + GAP;
  });
  return [hosts, devices, lines];
}

// From 1.5 to 8 pixels, on a logarithmic scale of the bandwidth.
export function linkThickness(bandwidth, least, most) {
  if (bandwidth === null || !(most > least)) return 5;
  const part = Math.log(bandwidth / least) / Math.log(most / least);
  return 1.5 + 6.5 * Math.min(1, Math.max(0, part));
}

const LABEL = { width: LABEL_WIDTH, height: 14 };

// Puts each label where it overlaps neither a box nor another label. Earlier labels choose first; a label without a free
// spot is left out, and the table has them all.
export function spaced(labels, boxes) {
  const kept = [];
  const near = ([x, y], box) =>
    Math.abs(box.x + box.width / 2 - x) < (box.width + LABEL.width) / 2 &&
    Math.abs(box.y + box.height / 2 - y) < (box.height + LABEL.height) / 2;
  for (const { spots, ...label } of labels) {
    const isFree = ([x, y]) =>
      kept.every(({ middle }) => Math.abs(middle[0] - x) >= LABEL.width || Math.abs(middle[1] - y) >= LABEL.height) &&
      !boxes.some((box) => near([x, y], box));
    const middle = spots.find(isFree);
    if (middle) kept.push({ ...label, middle });
  }
  return kept;
}
