// A large cluster drawn host by host.

import { counted } from "../data/format.mjs";

// A cluster whose "devices" are the hosts of another one, the links between hosts with the sum of their bytes, and labels.
export function byHosts(cluster, links, labels) {
  const devicesOf = cluster.hosts.map((_, host) => cluster.devices.filter((device) => device.host === host));
  const kept = cluster.hosts.map((_, host) => host).filter((host) => devicesOf[host].length);
  const indexOf = new Map(kept.map((host, number) => [host, number]));
  const devices = kept.map((host) => ({
    name: cluster.hosts[host].name,
    host: 0,
    memory: null,
    kind: kindsOf(devicesOf[host]),
  }));
  const sums = new Map();
  for (const link of links) {
    const ends = [link.source, link.target].map((device) => indexOf.get(cluster.devices[device].host));
    if (ends[0] === ends[1]) continue;
    const key = ends.join();
    const sum = sums.get(key) ?? {
      source: ends[0],
      target: ends[1],
      bandwidth: null,
      latency: link.latency,
      bytes: 0,
    };
    sum.bytes += link.bytes;
    sum.bandwidth = Math.max(sum.bandwidth ?? 0, link.bandwidth ?? 0) || null;
    sums.set(key, sum);
  }
  const hostLabels = new Map(
    kept.flatMap((host) => {
      const used = devicesOf[host].filter((device) => labels.has(device.name)).length;
      const text = `${used} used`;
      return used ? [[cluster.hosts[host].name, { text, short: text }]] : [];
    }),
  );
  return {
    cluster: { ...cluster, hosts: [{ name: "hosts", inside: cluster.between }], devices },
    links: [...sums.values()].sort((one, other) => other.bytes - one.bytes),
    labels: hostLabels,
  };
}

function kindsOf(devices) {
  const counts = new Map();
  for (const { kind } of devices) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => `${counted(count, "device")} of kind ${kind}`).join(", ");
}
