// Where links leave and reach the boxes of devices: each at a place of its own on the edge, in an order that keeps links
// of one device from crossing. Links in a row have the outer places, the longest innermost; links to other rows are
// between them.

const [SPREAD, EDGE] = [24, 8];
const ASIDE = 5; // places above and below are not quite under each other, so that lines to them are beside each other

export const sideOf = (source, target) => (target.x > source.x ? "above" : "below");
export const spanOf = (source, target) => Math.abs(source.x - target.x);
export const isFar = (source, target) => Math.abs(source.row - target.row) > 1;

// For each link where it leaves its source and where it reaches its target.
export function makePorts(devices, links) {
  const edges = new Map();
  const add = (device, edge, end) => {
    const key = `${device} ${edge}`;
    edges.set(key, [...(edges.get(key) ?? []), { device, edge, ...end }]);
  };
  links.forEach((link, place) => {
    const [source, target] = [devices[link.source], devices[link.target]];
    if (source.row === target.row) {
      const [edge, way] = target.x > source.x ? ["top", 1] : ["bottom", -1];
      const span = spanOf(source, target);
      add(link.source, edge, { link: place, end: 0, group: way, rank: -way * span });
      add(link.target, edge, { link: place, end: 1, group: -way, rank: way * span });
      return;
    }
    const down = target.row > source.row;
    // Far ones go round on the right. What goes down is to the left of what comes up between the same two.
    const rank = (other) => (isFar(source, target) ? Infinity : other.x + (down ? 0 : 0.5));
    add(link.source, down ? "bottom" : "top", { link: place, end: 0, group: 0, rank: rank(target) });
    add(link.target, down ? "top" : "bottom", { link: place, end: 1, group: 0, rank: rank(source) });
  });
  const ports = links.map(() => [0, 0]);
  for (const ends of edges.values()) {
    ends.sort((one, other) => one.group - other.group || (one.rank < other.rank ? -1 : one.rank > other.rank ? 1 : 0));
    const { x, width } = devices[ends[0].device];
    const spread = Math.min(SPREAD, (width - 2 * (EDGE + ASIDE)) / Math.max(1, ends.length - 1));
    const middle = x + width / 2 + (ends[0].edge === "top" ? ASIDE : -ASIDE);
    ends.forEach(({ link, end }, place) => {
      ports[link][end] = middle + (place - (ends.length - 1) / 2) * spread;
    });
  }
  return ports;
}
