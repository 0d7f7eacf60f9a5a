// A large cluster host by host: what is drawn where there are too many devices to draw them one by one.

import { counted } from "../data/format.mjs";

// A cluster whose "devices" are the hosts of another, and the links between them with all that they carry.
export function byHosts(cluster, links, runs) {
  const members = cluster.hosts.map((_, host) => cluster.devices.filter((device) => device.host === host));
  const kept = cluster.hosts.map((_, host) => host).filter((host) => members[host].length);
  const place = new Map(kept.map((host, number) => [host, number]));
  const devices = kept.map((host) => ({
    name: cluster.hosts[host].name,
    host: 0,
    memory: null,
    kind: kindsOf(members[host]),
  }));
  const sums = new Map();
  for (const link of links) {
    const ends = [link.source, link.target].map((device) => place.get(cluster.devices[device].host));
    if (ends[0] === ends[1]) continue;
    const key = ends.join();
    const found = sums.get(key) ?? {
      source: ends[0],
      target: ends[1],
      bandwidth: null,
      latency: link.latency,
      bytes: 0,
    };
    found.bytes += link.bytes;
    found.bandwidth = Math.max(found.bandwidth ?? 0, link.bandwidth ?? 0) || null;
    sums.set(key, found);
  }
  const told = new Map(
    kept.flatMap((host) => {
      const used = members[host].filter((device) => runs.has(device.name)).length;
      return used ? [[cluster.hosts[host].name, `${used} used`]] : [];
    }),
  );
  return {
    cluster: { ...cluster, hosts: [{ name: "hosts", inside: cluster.between }], devices },
    links: [...sums.values()].sort((one, other) => other.bytes - one.bytes),
    runs: told,
  };
}

function kindsOf(devices) {
  const counts = new Map();
  for (const { kind } of devices) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => `${counted(count, "device")} of kind ${kind}`).join(", ");
}
