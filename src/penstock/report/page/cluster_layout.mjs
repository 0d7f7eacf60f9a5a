// Where hosts and devices go on the picture of a cluster.

const DEVICE = { width: 94, height: 46 };
const [GAP, MARGIN, NAME, HEAD, FOOT, BETWEEN_ROWS] = [28, 16, 22, 38, 38, 62];
export const MOST_DRAWN = 64;

// Hosts beside each other as far as they fit, their devices in rows inside; in pixels.
export function clusterLayout(cluster, width) {
  const members = cluster.hosts.map((_, host) =>
    cluster.devices.flatMap((device, number) => (device.host === host ? [number] : [])),
  );
  const hosts = [];
  const devices = [];
  let [x, y, tall] = [0, 0, 0];
  members.forEach((numbers, host) => {
    if (!numbers.length) return;
    const most = Math.max(1, Math.floor((width - 2 * MARGIN + GAP) / (DEVICE.width + GAP)));
    const columns = Math.min(most, numbers.length <= 8 ? numbers.length : Math.ceil(Math.sqrt(numbers.length * 2)));
    const rows = Math.ceil(numbers.length / columns);
    const size = {
      width: 2 * MARGIN + columns * DEVICE.width + (columns - 1) * GAP,
      height: HEAD + FOOT + rows * DEVICE.height + (rows - 1) * BETWEEN_ROWS,
    };
    if (x > 0 && x + size.width > width) [x, y, tall] = [0, y + tall + GAP, 0];
    hosts.push({ host, x, y: y + NAME, ...size });
    numbers.forEach((number, place) => {
      devices[number] = {
        x: x + MARGIN + (place % columns) * (DEVICE.width + GAP),
        y: y + NAME + HEAD + Math.floor(place / columns) * (DEVICE.height + BETWEEN_ROWS),
        ...DEVICE,
      };
    });
    x += size.width + GAP;
    tall = Math.max(tall, NAME + size.height);
  });
  return { hosts, devices, width: Math.max(...hosts.map((host) => host.x + host.width), 1), height: y + tall };
}

// From 1 to 9 pixels, evenly in the order of magnitude of what the links can carry.
export function linkThickness(bandwidth, least, most) {
  if (bandwidth === null || !(most > least)) return 5;
  const part = Math.log(bandwidth / least) / Math.log(most / least);
  return 1.5 + 6.5 * Math.min(1, Math.max(0, part));
}

// A curve from one box to another, and where its label goes. In a row, arcs to the right are above and those to the
// left below; between rows, those down are on the left and those up on the right: so both directions can be told apart.
export function linkCurve(source, target) {
  const [x1, x2] = [source, target].map((box) => box.x + box.width / 2);
  if (source.y === target.y) {
    const right = x2 > x1 ? 1 : -1;
    const [from, to] = [x1 + 15 * right, x2 - 15 * right];
    const edge = right > 0 ? source.y : source.y + source.height;
    const height = Math.min(13 + 0.03 * Math.abs(x2 - x1), 30);
    const bend = edge - (right * height * 4) / 3;
    return {
      path: `M${from} ${edge} C${from} ${bend} ${to} ${bend} ${to} ${edge}`,
      middle: [(from + to) / 2, edge - right * height],
    };
  }
  const down = target.y > source.y;
  const shift = down ? -24 : 24;
  const [y1, y2] = down ? [source.y + source.height, target.y] : [source.y, target.y + target.height];
  const [from, to, half] = [x1 + shift, x2 + shift, (y1 + y2) / 2];
  return { path: `M${from} ${y1} C${from} ${half} ${to} ${half} ${to} ${y2}`, middle: [(from + to) / 2, half] };
}

const LABEL = { width: 46, height: 14 };

// Labels that would lie on a box, or on others that carry more, are left out; the table has them all.
export function spaced(labels, boxes) {
  const kept = [];
  const near = ([x, y], box) =>
    Math.abs(box.x + box.width / 2 - x) < (box.width + LABEL.width) / 2 &&
    Math.abs(box.y + box.height / 2 - y) < (box.height + LABEL.height) / 2;
  for (const label of labels) {
    const [x, y] = label.middle;
    const apart = (other) =>
      Math.abs(other.middle[0] - x) >= LABEL.width || Math.abs(other.middle[1] - y) >= LABEL.height;
    if (kept.every(apart) && !boxes.some((box) => near(label.middle, box))) kept.push(label);
  }
  return kept;
}
