"""A complete probe: ranks and devices, links in rounds, shared interfaces."""

import time
from collections.abc import Callable, Sequence

import msgspec

from penstock.device import is_tagged
from penstock.errors import InputError
from penstock.probe.all_reduce_probe import measure_all_reduces
from penstock.probe.concurrent_transfers import measure_concurrent
from penstock.probe.device_probe import describe_rank, measure_kernel
from penstock.probe.link_probe import measure_link
from penstock.probe.rank_group import Group
from penstock.probe.relative_speeds import find_slow_ranks
from penstock.probe.shared_interfaces import plan_flow_sets, shared_interfaces
from penstock.probe.tournament import Round, partners, plan_rounds
from penstock.probe.traffic import Traffic
from penstock.probe.types import Flow, FlowSet, MeasuredLink, Pair, ProbeResult, RankInfo

DISTURBED = 1.12
"""A link that is faster alone by this factor was disturbed by the other links of its round."""
UNSTEADY = 0.05
"""Residual above which a link is measured again."""
MAX_UNSTEADY = 16
"""Number of such pairs that are measured again, the worst ones first."""
MAX_REPEATED = 64
"""Number of pairs up to which all are measured again one at a time."""
ROUND_S = 20.0
"""Time limit of a round over slow links."""
MAX_TURNS = 16
MAX_ATTEMPTS = 4
MAX_RANKS = 1024

Show = Callable[[str], None]


def probe(group: Group, *, host: str | None = None, show: Show = lambda _text: None) -> ProbeResult:
    """Measure the cluster of these ranks. All ranks call this and return the same result.

    Args:
        group: This rank's view of the group.
        host: Name of this rank's host. None: detected.
        show: Called with a description of each step.

    Raises:
        InputError: The number of ranks is out of range.
        RunError: A rank failed, exited or did not respond in time; all ranks raise the same error.
    """
    if not 2 <= group.world <= MAX_RANKS:
        what = f"number of ranks must be 2 to {MAX_RANKS:,}, not {group.world:,}"
        raise InputError(what, hint="Start one process for each device.")
    return _Probe(group, show).run(host)


class _Probe:
    """One rank's part of the probe. Its state is the same on every rank."""

    def __init__(self, group: Group, show: Show) -> None:
        self._group = group
        self._show = show
        self._traffic = Traffic(group)
        self._links: dict[Pair, MeasuredLink] = {}
        self._host_of: list[str] = []
        self._num_rounds = 0
        self._notes: list[str] = []
        self._start_s = time.perf_counter()

    def run(self, host: str | None) -> ProbeResult:
        group = self._group
        self._show("collecting hosts and devices")
        infos = group.gather(RankInfo, lambda: describe_rank(group.rank, group.device, host), "the start")
        named = _name_hosts(infos)
        group.names = [f"rank {info.rank} on {info.host}" for info in named]
        rank_infos = self._kernels(named)
        host_of = self._host_of = [info.host for info in rank_infos]
        ranks = range(group.world)
        pairs = [(one, other) for one in ranks for other in ranks[one + 1 :]]
        inside = [pair for pair in pairs if host_of[pair[0]] == host_of[pair[1]]]
        across = [pair for pair in pairs if host_of[pair[0]] != host_of[pair[1]]]
        planned = plan_flow_sets(rank_infos, one_each=not is_tagged(group.backend))
        first = {(min(pair), max(pair)) for _, _, flows in planned for pair in flows}

        self._measure(plan_rounds(inside, host_of, ()), "links inside hosts")
        # Shared interfaces are not known yet: no two of these pairs use the same interface.
        self._measure(plan_rounds(first, host_of, host_of), "links between hosts")
        flow_sets = [self._measure_flow_set(name, out, flows) for name, out, flows in planned]
        shared = shared_interfaces(rank_infos, flow_sets)
        self._measure(plan_rounds(set(across) - first, host_of, shared), "links between hosts")
        for these in (inside, across):
            self._check_disturbance(these)
            self._repeat_unsteady(these)
        all_reduces = measure_all_reduces(group, rank_infos, self._show)
        totals = group.gather(int, lambda: self._traffic.num_sent, "the end")
        return ProbeResult(
            rank_infos=rank_infos,
            links=tuple(self._links[pair] for pair in sorted(self._links)),
            flow_sets=tuple(flow_sets),
            backend=group.backend,
            num_rounds=self._num_rounds,
            num_bytes=sum(totals),
            seconds=time.perf_counter() - self._start_s,
            notes=tuple(self._notes),
            all_reduces=all_reduces,
        )

    def _kernels(self, rank_infos: tuple[RankInfo, ...]) -> tuple[RankInfo, ...]:
        """Measure the devices of one host in turns, since they may share CPUs; few devices all take turns."""
        group = self._group
        few = len(rank_infos) <= MAX_TURNS
        turns = [
            info.rank if few else [s.rank for s in rank_infos if s.host == info.host].index(info.rank)
            for info in rank_infos
        ]
        for attempt in range(MAX_ATTEMPTS):
            # Other work may have slowed a device: slow devices are measured again.
            waiting = {info.rank for info in rank_infos} if not attempt else find_slow_ranks(rank_infos)
            for turn in sorted({turns[rank] for rank in waiting}):
                self._show(f"speed of device {turn + 1} of {max(turns) + 1}")
                local = group.rank in waiting and turns[group.rank] == turn
                rates = group.gather(float, self._kernel if local else float, "the kernel")
                rank_infos = tuple(
                    msgspec.structs.replace(info, flops_per_s=max(rate, info.flops_per_s))
                    for info, rate in zip(rank_infos, rates, strict=True)
                )
        return rank_infos

    def _kernel(self) -> float:
        return measure_kernel(self._group.device)

    def _measure(self, rounds: Sequence[Round], what: str) -> None:
        """Measure both directions of every pair, round by round."""
        for number, pairing in enumerate(rounds):
            done = f"{len(self._links)} of {self._group.world * (self._group.world - 1)} links"
            self._show(f"{what}, round {number + 1} of {len(rounds)}; {done}")
            self._run_round(pairing)

    def _run_round(self, pairing: Round) -> None:
        self._num_rounds += 1
        me, peer = self._group.rank, partners(pairing).get(self._group.rank)
        concurrent = len(pairing) > 1

        def local() -> list[MeasuredLink]:
            if peer is None:
                return []
            links: list[MeasuredLink] = []
            for sender in sorted((me, peer)):
                if sender != me:
                    self._traffic.serve(peer)
                    continue
                before = self._traffic.num_sent
                fit = measure_link(self._traffic, peer)
                sent = self._traffic.num_sent - before
                links.append(MeasuredLink(source=me, target=peer, fit=fit, num_bytes=sent, is_concurrent=concurrent))
            return links

        for links in self._group.gather(list[MeasuredLink], local, f"round {self._num_rounds}", extra_s=ROUND_S):
            self._links.update({(link.source, link.target): link for link in links})

    def _measure_flow_set(self, host: str, outgoing: bool, pairs: Sequence[Pair]) -> FlowSet:
        """Measure the rates of concurrent transfers of a host."""
        self._num_rounds += 1
        direction = "sending" if outgoing else "receiving"
        self._show(f"shared interface of {host}: {direction} on several links at once")
        flows = [
            Flow(source=source, target=target, alone=self._links[source, target].fit.bandwidth)
            for source, target in pairs
        ]
        rates = measure_concurrent(self._group, self._traffic, flows, f"concurrent transfers of {host}")
        measured = [msgspec.structs.replace(flow, busy=rate) for flow, rate in zip(flows, rates, strict=True)]
        return FlowSet(host=host, outgoing=outgoing, flows=tuple(measured))

    def _check_disturbance(self, pairs: Sequence[Pair]) -> None:
        """Measure pairs again that other pairs of their round may have disturbed, with no other pair of their hosts."""
        self._show("checking whether links disturb each other")
        slow = self._suspicious(pairs)
        self._measure(plan_rounds(slow, self._host_of, self._host_of), "repeating one pair per host")
        concurrent = [pair for pair in pairs if self._links[pair].is_concurrent]
        if not concurrent:
            return
        fastest = max(concurrent, key=self._rate)
        before = self._rate(fastest)
        self._run_round((fastest,))
        if self._rate(fastest) < DISTURBED * before:
            return
        rest = [pair for pair in concurrent if pair != fastest]
        if len(rest) <= MAX_REPEATED:
            self._measure([(pair,) for pair in rest], "links disturb each other: repeating one by one")
        else:
            self._notes.append(
                f"The fastest link is {self._rate(fastest) / before:.2f} times as fast alone as with other pairs, and "
                f"{len(rest):,} pairs are too many to repeat: links share a resource, bandwidths may be underestimated."
            )

    def _repeat_unsteady(self, pairs: Sequence[Pair]) -> None:
        """Measure links with large residuals again, and keep the better measurement."""
        residual = {pair: max(self._links[way].fit.residual for way in (pair, pair[::-1])) for pair in pairs}
        unsteady = sorted((pair for pair in pairs if residual[pair] > UNSTEADY), key=lambda pair: -residual[pair])
        before = dict(self._links)
        rounds = plan_rounds(unsteady[:MAX_UNSTEADY], self._host_of, self._host_of)
        self._measure(rounds, "repeating unsteady links")
        for way, link in before.items():
            if link.fit.residual < self._links[way].fit.residual:
                self._links[way] = link

    def _suspicious(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the pairs that were measured concurrently and are slower than another pair of the same two hosts."""
        best: dict[frozenset[str], float] = {}
        for pair in pairs:
            hosts = frozenset(self._host_of[rank] for rank in pair)
            best[hosts] = max(self._rate(pair), best.get(hosts, 0.0))
        return [
            pair
            for pair in pairs
            if self._links[pair].is_concurrent
            and DISTURBED * self._rate(pair) < best[frozenset(self._host_of[rank] for rank in pair)]
        ]

    def _rate(self, pair: Pair) -> float:
        return self._links[pair].fit.bandwidth + self._links[pair[1], pair[0]].fit.bandwidth


def _name_hosts(rank_infos: Sequence[RankInfo]) -> tuple[RankInfo, ...]:
    """Number the hosts that differ only in their network namespace."""
    keys = list(dict.fromkeys(info.host for info in rank_infos))
    names = [key.partition("\0")[0] for key in keys]
    alike = {name: [key for key in keys if key.partition("\0")[0] == name] for name in names}
    name_of = {
        key: name if len(alike[name]) == 1 else f"{name}-{alike[name].index(key)}"
        for key, name in zip(keys, names, strict=True)
    }
    return tuple(msgspec.structs.replace(info, host=name_of[info.host]) for info in rank_infos)
