"""A whole probe: who is there, every link by rounds, what links share, every device."""

import time
from collections.abc import Callable, Sequence

import msgspec

from penstock.errors import InputError
from penstock.probe.concurrent_transfers import measure_crowd
from penstock.probe.device_probe import measure_kernel, take_seat
from penstock.probe.link_probe import measure_link
from penstock.probe.rank_group import Group
from penstock.probe.relative_speeds import laggards
from penstock.probe.shared_interfaces import crowded_pairs, shared_interfaces
from penstock.probe.tournament import Round, partners, plan_rounds
from penstock.probe.traffic import Traffic
from penstock.probe.types import Crowd, Findings, Flow, LinkFound, Pair, Seat

DISTURBED = 1.12
"""A link that is so many times as fast alone was disturbed by the others of its round."""
UNSTEADY = 0.05
"""Residuals from which on a link is measured again."""
MAX_UNSTEADY = 16
"""So many pairs at most, the worst ones."""
MAX_REPEATED = 64
"""So many pairs are measured once more, one at a time."""
ROUND_S = 20.0
"""So long a round may take by itself, over slow links."""
MAX_TURNS = 16
MAX_ATTEMPTS = 4
MAX_RANKS = 1024

Show = Callable[[str], None]


def probe(group: Group, *, host: str | None = None, show: Show = lambda _text: None) -> Findings:
    """Measure the cluster of these ranks. All call this, and all get the same."""
    if not 2 <= group.world <= MAX_RANKS:
        what = f"a probe needs 2 to {MAX_RANKS:,} ranks, not {group.world:,}"
        raise InputError(what, hint="One process for each device: links join two of them.")
    return _Probe(group, show).run(host)


class _Probe:
    """One rank's part; what it keeps is the same on every rank."""

    def __init__(self, group: Group, show: Show) -> None:
        self._group = group
        self._show = show
        self._traffic = Traffic(group)
        self._links: dict[Pair, LinkFound] = {}
        self._host_of: list[str] = []
        self._num_rounds = 0
        self._notes: list[str] = []
        self._start_s = time.perf_counter()

    def run(self, host: str | None) -> Findings:
        group = self._group
        self._show("who is there")
        found = group.gather(Seat, lambda: take_seat(group.rank, group.device, host), "the start")
        named = _named(found)
        group.names = [f"rank {seat.rank} on {seat.host}" for seat in named]
        seats = self._kernels(named)
        host_of = self._host_of = [seat.host for seat in seats]
        ranks = range(group.world)
        pairs = [(one, other) for one in ranks for other in ranks[one + 1 :]]
        inside = [pair for pair in pairs if host_of[pair[0]] == host_of[pair[1]]]
        across = [pair for pair in pairs if host_of[pair[0]] != host_of[pair[1]]]
        wanted = crowded_pairs(seats, one_each=group.backend == "nccl")
        first = {(min(pair), max(pair)) for _, _, flows in wanted for pair in flows}

        self._measure(plan_rounds(inside, host_of, ()), "links inside hosts")
        # Nothing is known yet of what is shared: no two of these go over one interface.
        self._measure(plan_rounds(first, host_of, host_of), "links between hosts")
        crowds = [self._crowd(name, out, flows) for name, out, flows in wanted]
        shared = shared_interfaces(seats, crowds)
        self._measure(plan_rounds(set(across) - first, host_of, shared), "links between hosts")
        for these in (inside, across):
            self._check_company(these)
            self._repeat_unsteady(these)
        totals = group.gather(int, lambda: self._traffic.num_sent, "the end")
        return Findings(
            seats=seats,
            links=tuple(self._links[pair] for pair in sorted(self._links)),
            crowds=tuple(crowds),
            backend=group.backend,
            num_rounds=self._num_rounds,
            num_bytes=sum(totals),
            seconds=time.perf_counter() - self._start_s,
            notes=tuple(self._notes),
        )

    def _kernels(self, seats: tuple[Seat, ...]) -> tuple[Seat, ...]:
        """Devices of one host take turns, as they may share processors; of few devices, all do."""
        group = self._group
        few = len(seats) <= MAX_TURNS
        turns = [
            seat.rank if few else [s.rank for s in seats if s.host == seat.host].index(seat.rank) for seat in seats
        ]
        for attempt in range(MAX_ATTEMPTS):
            # Something else may have used a device just then: those that lag behind have another chance.
            waiting = {seat.rank for seat in seats} if not attempt else laggards(seats)
            for turn in sorted({turns[rank] for rank in waiting}):
                self._show(f"speed of device {turn + 1} of {max(turns) + 1}")
                mine = group.rank in waiting and turns[group.rank] == turn
                found = group.gather(float, self._kernel if mine else float, "the kernel")
                seats = tuple(
                    msgspec.structs.replace(seat, flops_per_s=max(rate, seat.flops_per_s))
                    for seat, rate in zip(seats, found, strict=True)
                )
        return seats

    def _kernel(self) -> float:
        return measure_kernel(self._group.device)

    def _measure(self, rounds: Sequence[Round], what: str) -> None:
        """Both directions of every pair, the rounds one after the other."""
        for number, games in enumerate(rounds):
            done = f"{len(self._links)} of {self._group.world * (self._group.world - 1)} links"
            self._show(f"{what}, round {number + 1} of {len(rounds)}; {done}")
            self._play(games)

    def _play(self, games: Round) -> None:
        self._num_rounds += 1
        me, peer = self._group.rank, partners(games).get(self._group.rank)
        crowded = len(games) > 1

        def mine() -> list[LinkFound]:
            if peer is None:
                return []
            found: list[LinkFound] = []
            for sender in sorted((me, peer)):
                if sender != me:
                    self._traffic.serve(peer)
                    continue
                before = self._traffic.num_sent
                fit = measure_link(self._traffic, peer)
                sent = self._traffic.num_sent - before
                found.append(LinkFound(source=me, target=peer, fit=fit, num_bytes=sent, in_company=crowded))
            return found

        for links in self._group.gather(list[LinkFound], mine, f"round {self._num_rounds}", more_s=ROUND_S):
            self._links.update({(link.source, link.target): link for link in links})

    def _crowd(self, host: str, outgoing: bool, pairs: Sequence[Pair]) -> Crowd:
        """Several transfers at once, and what each has of them."""
        self._num_rounds += 1
        self._show(f"does {host} share its network interface? {'sending' if outgoing else 'receiving'} at once")
        flows = [
            Flow(source=source, target=target, alone=self._links[source, target].fit.bandwidth)
            for source, target in pairs
        ]
        rates = measure_crowd(self._group, self._traffic, flows, f"the crowd of {host}")
        found = [msgspec.structs.replace(flow, busy=rate) for flow, rate in zip(flows, rates, strict=True)]
        return Crowd(host=host, outgoing=outgoing, flows=tuple(found))

    def _check_company(self, pairs: Sequence[Pair]) -> None:
        """Were pairs of a round in each other's way? Those that may have been are measured with nobody near them."""
        self._show("do links disturb each other?")
        slow = self._suspicious(pairs)
        self._measure(plan_rounds(slow, self._host_of, self._host_of), "once more, without company near")
        crowded = [pair for pair in pairs if self._links[pair].in_company]
        if not crowded:
            return
        fastest = max(crowded, key=self._rate)
        before = self._rate(fastest)
        self._play((fastest,))
        if self._rate(fastest) < DISTURBED * before:
            return
        rest = [pair for pair in crowded if pair != fastest]
        if len(rest) <= MAX_REPEATED:
            self._measure([(pair,) for pair in rest], "links disturb each other, so one by one")
        else:
            self._notes.append(
                f"The fastest link is {self._rate(fastest) / before:.2f} times as fast alone as when other pairs are "
                f"measured too, and {len(rest):,} pairs are too many to repeat: something behind the links is shared."
            )

    def _repeat_unsteady(self, pairs: Sequence[Pair]) -> None:
        """Links that the fit describes badly have a second chance: what disturbed them may have gone."""
        residual = {pair: max(self._links[way].fit.residual for way in (pair, pair[::-1])) for pair in pairs}
        unsteady = sorted((pair for pair in pairs if residual[pair] > UNSTEADY), key=lambda pair: -residual[pair])
        before = dict(self._links)
        rounds = plan_rounds(unsteady[:MAX_UNSTEADY], self._host_of, self._host_of)
        self._measure(rounds, "once more, as times were unsteady")
        for way, link in before.items():
            if link.fit.residual < self._links[way].fit.residual:
                self._links[way] = link

    def _suspicious(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Pairs that had company and are slower than another pair of the same two hosts."""
        best: dict[frozenset[str], float] = {}
        for pair in pairs:
            hosts = frozenset(self._host_of[rank] for rank in pair)
            best[hosts] = max(self._rate(pair), best.get(hosts, 0.0))
        return [
            pair
            for pair in pairs
            if self._links[pair].in_company
            and DISTURBED * self._rate(pair) < best[frozenset(self._host_of[rank] for rank in pair)]
        ]

    def _rate(self, pair: Pair) -> float:
        return self._links[pair].fit.bandwidth + self._links[pair[1], pair[0]].fit.bandwidth


def _named(seats: Sequence[Seat]) -> tuple[Seat, ...]:
    """Hosts that only their network namespace tells apart get numbers."""
    keys = list(dict.fromkeys(seat.host for seat in seats))
    names = [key.partition("\0")[0] for key in keys]
    alike = {name: [key for key in keys if key.partition("\0")[0] == name] for name in names}
    name_of = {
        key: name if len(alike[name]) == 1 else f"{name}-{alike[name].index(key)}"
        for key, name in zip(keys, names, strict=True)
    }
    return tuple(msgspec.structs.replace(seat, host=name_of[seat.host]) for seat in seats)
