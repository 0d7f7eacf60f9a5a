// The section about the cluster: devices and links as a picture, with what runs where and what goes over which link.

import { MOST_DRAWN, clusterLayout, linkCurve, linkThickness, spaced } from "./cluster_layout.mjs";
import { counted, partOf, shortened, showBytes, showPercent, showRate, showSeconds } from "./format.mjs";
import { byHosts } from "./cluster_hosts.mjs";
import { deviceColour } from "./colours.mjs";
import { el, fillToWidth, section, svg, table } from "./dom.mjs";
import { trafficOf } from "./model.mjs";

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
  const words =
    `${counted(cluster.numDevices, "device")} on ${counted(cluster.hosts.length, "host")}` +
    (inside ? `, ${inside} inside a host` : "") +
    (cluster.hosts.length > 1 ? `, ${showRate(cluster.between.bandwidth)} between hosts` : "") +
    ". Lines are links that carry something, thicker the more they can carry; numbers are bytes an iteration.";
  return [
    ...pictureContent(model, cluster, links, width),
    el("p", { class: "hint", text: words }),
    linkTable(cluster, links, model),
  ];
}

// Device by device, or host by host where there are many; nothing where there are many hosts too.
function pictureContent(model, cluster, links, width) {
  const stages = stagesOf(model);
  if (cluster.devices.length <= MOST_DRAWN) return [picture(model, cluster, links, stages, width)];
  const grouped = byHosts(cluster, links, stages);
  if (grouped.cluster.devices.length > MOST_DRAWN)
    return [el("p", { text: "There are too many devices and hosts for a picture." })];
  return [
    picture(model, grouped.cluster, grouped.links, grouped.stages, width),
    el("p", { class: "hint", text: "There are many devices, so each box is a host." }),
  ];
}

function picture(model, cluster, links, stages, width) {
  const layout = clusterLayout(cluster, width);
  const pad = 10;
  const image = svg("svg", {
    viewBox: `${-pad} ${-pad} ${layout.width + 2 * pad} ${layout.height + 2 * pad + 20}`,
    class: "cluster",
    role: "img",
    width: layout.width + 2 * pad,
    height: layout.height + 2 * pad + 20,
    "aria-label": `The cluster ${cluster.name}; the table below says the same`,
  });
  for (const { host, x, y, width: wide, height } of layout.hosts) {
    image.append(
      svg("rect", { x, y, width: wide, height, rx: 8, class: "host" }),
      svg("text", {
        x: x + 2,
        y: y - 7,
        class: "note",
        text: shortened(cluster.hosts[host].name, Math.floor((wide - 20) / 6.5)),
      }),
    );
  }
  const rates = links.map((link) => link.bandwidth).filter((rate) => rate !== null);
  const [least, most] = [Math.min(...rates), Math.max(...rates)];
  const labels = [];
  for (const link of links) {
    const curve = linkCurve(layout.devices[link.source], layout.devices[link.target]);
    const line = svg("path", {
      d: curve.path,
      class: "link",
      "stroke-width": linkThickness(link.bandwidth, least, most),
    });
    line.append(svg("title", { text: linkWords(cluster, link) }));
    image.append(line);
    labels.push({ ...link, middle: curve.middle });
  }
  cluster.devices.forEach((device, number) => {
    const box = layout.devices[number];
    const place = model.devices.findIndex((found) => found.name === device.name);
    const used = stages.has(device.name);
    const shape = svg("rect", { ...box, rx: 5, class: used ? "device" : "device idle" });
    shape.append(svg("title", { text: deviceWords(device, stages) }));
    image.append(shape);
    if (place >= 0 && used)
      image.append(svg("rect", { x: box.x, y: box.y, width: 6, height: box.height, rx: 2, fill: deviceColour(place) }));
    image.append(
      svg("text", { x: box.x + 13, y: box.y + 19, class: "device-name", text: shortened(device.name, 11) }),
      svg("text", {
        x: box.x + 13,
        y: box.y + 35,
        class: "note",
        text: shortened(stages.get(device.name) ?? "not used", 13),
      }),
    );
  });
  for (const { middle, bytes } of spaced(labels, layout.devices)) {
    image.append(
      svg("text", {
        x: middle[0],
        y: middle[1] + 4,
        "text-anchor": "middle",
        class: "traffic",
        text: showBytes(bytes),
      }),
    );
  }
  return el("div", { class: "scroll-x" }, image);
}

// Which segments each device runs, by name.
function stagesOf(model) {
  const found = new Map();
  const add = (name, text) => found.set(name, [...(found.get(name) ?? []), text]);
  model.segments.forEach((segment, number) => {
    const forward = new Set(segment.forward.map(([name]) => name));
    const backward = new Set(segment.backward.map(([name]) => name));
    for (const name of new Set([...forward, ...backward])) {
      add(name, forward.has(name) && backward.has(name) ? `${number}` : `${number}${forward.has(name) ? "F" : "B"}`);
    }
  });
  return new Map(
    [...found].map(([name, numbers]) => {
      const text = numbers.join(", ");
      return [name, text.length > 7 ? text : `stage ${text}`];
    }),
  );
}

const deviceWords = (device, stages) =>
  `${device.name}: ${device.kind}${device.memory ? `, ${showBytes(device.memory)}` : ""}; ` +
  (stages.get(device.name) ?? "not used");

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
    { text: "bytes an iteration", number: true },
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
