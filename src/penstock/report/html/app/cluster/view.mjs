// The cluster section: a picture of devices and links, with the stages of each device and the bytes on each link.

import { MAX_DRAWN, clusterLayout, linkThickness, spaced } from "./layout.mjs";
import { arrowHead, linkRoutes } from "./links.mjs";
import { counted, partOf, shortened, showBytes, showPercent, showRate, showSeconds } from "../data/format.mjs";
import { byHosts } from "./hosts.mjs";
import { deviceColour } from "../ui/colours.mjs";
import { el, fillToWidth, section, svg, table } from "../ui/dom.mjs";
import { PARTS_HINT, hasParts, stageLabels, stagesOf } from "./stages.mjs";
import { shortNames } from "../data/short_names.mjs";
import { trafficOf } from "../data/timeline_model.mjs";

const NAME_LETTERS = 11; // of a device name in its box
const HOST_LETTER = 6.5; // pixels
const UNUSED = { text: "not used", short: "not used" };

export function clusterView(app) {
  const box = el("div");
  const fill = () => {
    const model = app.models[app.state.about];
    const cluster = model.cluster === null ? null : app.data.clusters[model.cluster];
    box.replaceChildren(
      ...(cluster
        ? clusterContent(model, cluster, box.clientWidth || 900)
        : [el("p", { text: "The file does not contain the cluster, and the cluster that it names was not found." })]),
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
  const bytes = model.origin === "measured" ? "predicted bytes per iteration" : "bytes per iteration";
  const hint =
    `${counted(cluster.numDevices, "device")} on ${counted(cluster.hosts.length, "host")}` +
    (inside ? `, ${inside} inside a host` : "") +
    (cluster.hosts.length > 1 ? `, ${showRate(cluster.between.bandwidth)} between hosts` : "") +
    `. Lines are links in use, thicker for more bandwidth; numbers are ${bytes}. ` +
    "Arrows point to the receiver.";
  return [
    ...pictureContent(model, cluster, links, width),
    el("p", { class: "hint", text: hint }),
    linkTable(cluster, links, model),
  ];
}

// A box for each device, or for each host of a large cluster; no picture where there are too many hosts as well.
function pictureContent(model, cluster, links, width) {
  const stages = stagesOf(model);
  const labels = stageLabels(stages);
  if (cluster.devices.length <= MAX_DRAWN)
    return [
      picture(model, cluster, links, labels, width),
      ...(hasParts(stages) ? [el("p", { class: "hint", text: PARTS_HINT })] : []),
    ];
  const grouped = byHosts(cluster, links, labels);
  if (grouped.cluster.devices.length > MAX_DRAWN)
    return [el("p", { text: "The cluster has too many devices and hosts for a picture." })];
  return [
    picture(model, grouped.cluster, grouped.links, grouped.labels, width),
    el("p", { class: "hint", text: "Each box is a host, because the cluster has many devices." }),
  ];
}

function picture(model, cluster, links, labels, width) {
  const layout = clusterLayout(cluster, width, links);
  const pad = 2;
  const image = svg("svg", {
    viewBox: `${-pad} 0 ${layout.width + 2 * pad} ${layout.height + pad}`,
    class: "cluster",
    role: "img",
    width: layout.width + 2 * pad,
    height: layout.height + pad,
    "aria-label": `The cluster ${cluster.name}; the table below has the same data`,
  });
  for (const { x, y, width: wide, height } of layout.hosts) {
    image.append(svg("rect", { x, y, width: wide, height, rx: 8, class: "host" }));
  }
  const traffic = linkShapes(image, cluster, layout, links);
  deviceShapes(image, model, cluster, layout, labels);
  const names = layout.hosts.map((host) => hostName(cluster, host));
  image.append(...names.map(({ shape }) => shape));
  for (const { middle, bytes } of spaced(traffic, [...layout.devices, ...names])) {
    const position = { x: middle[0], y: middle[1] + 4, "text-anchor": "middle" };
    image.append(svg("text", { ...position, class: "traffic", text: showBytes(bytes) }));
  }
  return el("div", { class: "scroll-x" }, image);
}

// Draws the links, and returns their labels.
function linkShapes(image, cluster, layout, links) {
  const rates = links.map((link) => link.bandwidth).filter((rate) => rate !== null);
  const [least, most] = [Math.min(...rates), Math.max(...rates)];
  return linkRoutes(layout, links).map(({ path, points, spots }, index) => {
    const link = links[index];
    const size = linkThickness(link.bandwidth, least, most);
    image.append(
      svg("path", { d: path, class: "link", "stroke-width": size }, svg("title", { text: linkText(cluster, link) })),
      svg("path", { d: arrowHead(points, size), class: "arrow" }),
    );
    return { ...link, spots };
  });
}

function deviceShapes(image, model, cluster, layout, labels) {
  const names = shortNames(cluster.devices.map((device) => device.name), (text) => [...text].length <= NAME_LETTERS);
  cluster.devices.forEach((device, number) => {
    const { x, y, width, height } = layout.devices[number];
    const index = model.devices.findIndex((other) => other.name === device.name);
    const label = labels.get(device.name) ?? UNUSED;
    const used = label !== UNUSED;
    const title = svg("title", { text: deviceText(device, label) });
    image.append(svg("rect", { x, y, width, height, rx: 5, class: used ? "device" : "device idle" }, title));
    if (index >= 0 && used) image.append(svg("rect", { x, y, width: 6, height, rx: 2, fill: deviceColour(index) }));
    image.append(
      svg("text", { x: x + 13, y: y + 19, class: "device-name", text: names[number] }),
      svg("text", { x: x + 13, y: y + 35, class: "note", text: label.short }),
    );
  });
}

// The name above a host, and its box, which labels of links avoid.
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

const deviceText = (device, label) =>
  `${device.name}: ${device.kind}${device.memory ? `, ${showBytes(device.memory)}` : ""}; ${label.text}`;

const linkText = (cluster, link) =>
  `${cluster.devices[link.source].name} → ${cluster.devices[link.target].name}: ${showRate(link.bandwidth)}, ` +
  `latency ${showSeconds(link.latency)}, ${showBytes(link.bytes)} per iteration`;

const MAX_LINKS = 200;

function linkTable(cluster, links, model) {
  const columns = [
    { text: "from" },
    { text: "to" },
    { text: "bandwidth", number: true },
    { text: "latency", number: true },
    { text: model.origin === "measured" ? "predicted bytes per iteration" : "bytes per iteration", number: true },
    { text: "share of the iteration", number: true },
  ];
  const rows = links
    .slice(0, MAX_LINKS)
    .map((link) => [
      cluster.devices[link.source].name,
      cluster.devices[link.target].name,
      showRate(link.bandwidth),
      showSeconds(link.latency),
      showBytes(link.bytes),
      link.bandwidth ? showPercent(partOf(link.bytes / link.bandwidth, model.iteration)) : "",
    ]);
  const content = table("Links in use", columns, rows);
  return el("details", {}, el("summary", { text: `${counted(links.length, "link")} in use, as a table` }), content);
}
