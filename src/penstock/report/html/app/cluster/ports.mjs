// The ports of links on the edges of device boxes, in an order in which links of one device do not cross. Links in a row
// have the outer ports, the longest innermost; links to other rows are between them.

const [SPREAD, EDGE] = [24, 8];
const ASIDE = 5; // ports at the top and at the bottom are shifted, so that lines to them run side by side

export const sideOf = (source, target) => (target.x > source.x ? "above" : "below");
export const spanOf = (source, target) => Math.abs(source.x - target.x);
export const isFar = (source, target) => Math.abs(source.row - target.row) > 1;

// For each link the x of its port at the source and at the target.
export function makePorts(devices, links) {
  const edges = new Map();
  const add = (device, edge, end) => {
    const key = `${device} ${edge}`;
    edges.set(key, [...(edges.get(key) ?? []), { device, edge, ...end }]);
  };
  links.forEach((link, index) => {
    const [source, target] = [devices[link.source], devices[link.target]];
    if (source.row === target.row) {
      const [edge, way] = target.x > source.x ? ["top", 1] : ["bottom", -1];
      const span = spanOf(source, target);
      add(link.source, edge, { link: index, end: 0, group: way, rank: -way * span });
      add(link.target, edge, { link: index, end: 1, group: -way, rank: way * span });
      return;
    }
    const down = target.row > source.row;
    // Links to far rows go round on the right. Between the same two devices, the link down is left of the link up.
    const rank = (other) => (isFar(source, target) ? Infinity : other.x + (down ? 0 : 0.5));
    add(link.source, down ? "bottom" : "top", { link: index, end: 0, group: 0, rank: rank(target) });
    add(link.target, down ? "top" : "bottom", { link: index, end: 1, group: 0, rank: rank(source) });
  });
  const ports = links.map(() => [0, 0]);
  for (const ends of edges.values()) {
    ends.sort((one, other) => one.group - other.group || (one.rank < other.rank ? -1 : one.rank > other.rank ? 1 : 0));
    const { x, width } = devices[ends[0].device];
    const spread = Math.min(SPREAD, (width - 2 * (EDGE + ASIDE)) / Math.max(1, ends.length - 1));
    const middle = x + width / 2 + (ends[0].edge === "top" ? ASIDE : -ASIDE);
    ends.forEach(({ link, end }, index) => {
      ports[link][end] = middle + (index - (ends.length - 1) / 2) * spread;
    });
  }
  return ports;
}
