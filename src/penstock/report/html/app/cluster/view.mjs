// The section about the cluster: devices and links as a picture, with what runs where and what goes over which link.

import { MOST_DRAWN, clusterLayout, linkThickness, spaced } from "./layout.mjs";
import { arrowHead, linkRoutes } from "./links.mjs";
import { counted, partOf, shortened, showBytes, showPercent, showRate, showSeconds } from "../data/format.mjs";
import { byHosts } from "./hosts.mjs";
import { deviceColour } from "../ui/colours.mjs";
import { el, fillToWidth, section, svg, table } from "../ui/dom.mjs";
import { PART_WORDS, boxWords, hasParts, stagesOf } from "./stages.mjs";
import { shortNames } from "../data/short_names.mjs";
import { trafficOf } from "../data/timeline_model.mjs";

const NAME_LETTERS = 11; // of a device's name in its box
const HOST_LETTER = 6.5; // pixels

export function clusterView(app) {
  const box = el("div");
  const fill = () => {
    const model = app.models[app.state.about];
    const cluster = model.cluster === null ? null : app.data.clusters[model.cluster];
    box.replaceChildren(
      ...(cluster
        ? clusterContent(model, cluster, box.clientWidth || 900)
        : [el("p", { text: "The file says nothing about the cluster, and the one that it names was not found." })]),
    );
  };
  app.listen((state, before) => {
    if (state.about !== before.about) fill();
  });
  fillToWidth(box, fill);
  return section("cluster", "Cluster", box);
}

function clusterContent(model, cluster, width) {
  const traffic = trafficOf(model);
  const links = cluster.links
    .map((link) => ({
      ...link,
      bytes: traffic.get(JSON.stringify([cluster.devices[link.source].name, cluster.devices[link.target].name])) ?? 0,
    }))
    .filter((link) => link.bytes > 0)
    .sort((one, other) => other.bytes - one.bytes);
  const hosts = cluster.hosts.filter((_, host) => cluster.devices.filter((device) => device.host === host).length > 1);
  const inside = [...new Set(hosts.map((host) => showRate(host.inside.bandwidth)))].join(" or ");
  const bytes = model.origin === "measured" ? "predicted bytes an iteration" : "bytes an iteration";
  const words =
    `${counted(cluster.numDevices, "device")} on ${counted(cluster.hosts.length, "host")}` +
    (inside ? `, ${inside} inside a host` : "") +
    (cluster.hosts.length > 1 ? `, ${showRate(cluster.between.bandwidth)} between hosts` : "") +
    `. Lines are links that carry something, thicker the more they can carry; numbers are ${bytes}. ` +
    "Arrows point to who receives.";
  return [
    ...pictureContent(model, cluster, links, width),
    el("p", { class: "hint", text: words }),
    linkTable(cluster, links, model),
  ];
}

// Device by device, or host by host where there are many; nothing where there are many hosts too.
function pictureContent(model, cluster, links, width) {
  const runs = stagesOf(model);
  if (cluster.devices.length <= MOST_DRAWN)
    return [
      picture(model, cluster, links, runs, width),
      ...(hasParts(runs) ? [el("p", { class: "hint", text: PART_WORDS })] : []),
    ];
  const grouped = byHosts(cluster, links, runs);
  if (grouped.cluster.devices.length > MOST_DRAWN)
    return [el("p", { text: "There are too many devices and hosts for a picture." })];
  return [
    picture(model, grouped.cluster, grouped.links, grouped.runs, width),
    el("p", { class: "hint", text: "There are many devices, so each box is a host." }),
  ];
}

function picture(model, cluster, links, runs, width) {
  const layout = clusterLayout(cluster, width, links);
  const pad = 2;
  const image = svg("svg", {
    viewBox: `${-pad} 0 ${layout.width + 2 * pad} ${layout.height + pad}`,
    class: "cluster",
    role: "img",
    width: layout.width + 2 * pad,
    height: layout.height + pad,
    "aria-label": `The cluster ${cluster.name}; the table below says the same`,
  });
  for (const { x, y, width: wide, height } of layout.hosts) {
    image.append(svg("rect", { x, y, width: wide, height, rx: 8, class: "host" }));
  }
  const labels = linkShapes(image, cluster, layout, links);
  deviceShapes(image, model, cluster, layout, runs);
  const names = layout.hosts.map((host) => hostName(cluster, host));
  image.append(...names.map(({ shape }) => shape));
  for (const { middle, bytes } of spaced(labels, [...layout.devices, ...names])) {
    const place = { x: middle[0], y: middle[1] + 4, "text-anchor": "middle" };
    image.append(svg("text", { ...place, class: "traffic", text: showBytes(bytes) }));
  }
  return el("div", { class: "scroll-x" }, image);
}

// Draws the links, and gives what is to be written on them.
function linkShapes(image, cluster, layout, links) {
  const rates = links.map((link) => link.bandwidth).filter((rate) => rate !== null);
  const [least, most] = [Math.min(...rates), Math.max(...rates)];
  return linkRoutes(layout, links).map(({ path, points, spots }, place) => {
    const link = links[place];
    const size = linkThickness(link.bandwidth, least, most);
    image.append(
      svg("path", { d: path, class: "link", "stroke-width": size }, svg("title", { text: linkWords(cluster, link) })),
      svg("path", { d: arrowHead(points, size), class: "arrow" }),
    );
    return { ...link, spots };
  });
}

function deviceShapes(image, model, cluster, layout, runs) {
  const names = shortNames(cluster.devices.map((device) => device.name), (text) => [...text].length <= NAME_LETTERS);
  cluster.devices.forEach((device, number) => {
    const { x, y, width, height } = layout.devices[number];
    const place = model.devices.findIndex((found) => found.name === device.name);
    const used = runs.has(device.name);
    const title = svg("title", { text: deviceWords(device, runs) });
    image.append(svg("rect", { x, y, width, height, rx: 5, class: used ? "device" : "device idle" }, title));
    if (place >= 0 && used) image.append(svg("rect", { x, y, width: 6, height, rx: 2, fill: deviceColour(place) }));
    const told = boxWords(runs.get(device.name) ?? "not used");
    image.append(
      svg("text", { x: x + 13, y: y + 19, class: "device-name", text: names[number] }),
      svg("text", { x: x + 13, y: y + 35, class: "note", text: told }),
    );
  });
}

// Over the host, and where that is, as links may pass there.
function hostName(cluster, { host, x, y, width }) {
  const text = shortened(cluster.hosts[host].name, Math.floor((width - 20) / HOST_LETTER));
  return {
    shape: svg("text", { x: x + 2, y: y - 7, class: "note over", text }),
    x,
    y: y - 18,
    width: text.length * HOST_LETTER,
    height: 14,
  };
}

const deviceWords = (device, runs) =>
  `${device.name}: ${device.kind}${device.memory ? `, ${showBytes(device.memory)}` : ""}; ` +
  (runs.get(device.name) ?? "not used");

const linkWords = (cluster, link) =>
  `${cluster.devices[link.source].name} → ${cluster.devices[link.target].name}: ${showRate(link.bandwidth)}, ` +
  `latency ${showSeconds(link.latency)}, ${showBytes(link.bytes)} an iteration`;

const MOST_LINKS = 200;

function linkTable(cluster, links, model) {
  const columns = [
    { text: "from" },
    { text: "to" },
    { text: "bandwidth", number: true },
    { text: "latency", number: true },
    { text: model.origin === "measured" ? "predicted bytes an iteration" : "bytes an iteration", number: true },
    { text: "of the iteration", number: true },
  ];
  const rows = links
    .slice(0, MOST_LINKS)
    .map((link) => [
      cluster.devices[link.source].name,
      cluster.devices[link.target].name,
      showRate(link.bandwidth),
      showSeconds(link.latency),
      showBytes(link.bytes),
      link.bandwidth ? showPercent(partOf(link.bytes / link.bandwidth, model.iteration)) : "",
    ]);
  const content = table("Links that carry something", columns, rows);
  return el("details", {}, el("summary", { text: `${counted(links.length, "link")} in use, as a table` }), content);
}
