"""The steps of a probe on ranks that are threads, over links whose bandwidths are known."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from penstock.errors import InputError
from penstock.probe import measure as module
from penstock.probe.concurrent_transfers import busy_rate, message_bytes
from penstock.probe.measure import MAX_ATTEMPTS, MAX_RANKS, MAX_REPEATED, MAX_TURNS, MAX_UNSTEADY, _name_hosts, probe
from penstock.probe.tournament import Round, partners
from penstock.probe.types import Fit, Flow, Pair, ProbeResult, RankInfo

if TYPE_CHECKING:
    from penstock.probe.rank_group import Group

T = TypeVar("T")
ALONE = 100.0


class Network:
    """Links with known bandwidths.

    Args:
        hosts: The host of each rank.
        rate: Returns the bandwidth of a link, given the other pairs of its round.
        residuals: By link: the residuals of its measurements, one after the other; 0 afterwards.
        speeds: By rank: the rates of its kernel, one after the other; 1 afterwards.
    """

    def __init__(
        self,
        hosts: str,
        rate: Callable[[Pair, Round], float] = lambda _link, _others: ALONE,
        residuals: Mapping[Pair, Sequence[float]] | None = None,
        speeds: Mapping[int, Sequence[float]] | None = None,
    ) -> None:
        self.hosts = hosts
        self.rate = rate
        self.residuals = {link: [*values] for link, values in (residuals or {}).items()}
        self.speeds = {rank: [*values] for rank, values in (speeds or {}).items()}
        self.rounds: list[Round] = []
        self.kernels: list[list[int]] = []
        """The ranks that run the kernel at the same time."""
        self.current: Round = ()
        self.results: list[Any] = [None] * len(hosts)
        self.barrier = threading.Barrier(len(hosts))

    def measure_link(self, traffic: "Traffic", peer: int) -> Fit:
        link = traffic.rank, peer
        others = tuple(pair for pair in self.current if link[0] not in pair)
        traffic.num_sent += 10
        left = self.residuals.get(link, [])
        residual = left.pop(0) if left else 0.0
        return Fit(bandwidth=self.rate(link, others), latency_s=1e-4, residual=residual, bandwidth_error=0.0)

    def partners(self, pairing: Round) -> Mapping[int, int]:
        self.current = pairing
        return partners(pairing)

    def kernel(self, rank: int) -> float:
        self.kernels[-1].append(rank)
        left = self.speeds.get(rank, [])
        return left.pop(0) if left else 1.0


class Ranks:
    """`Group` of a thread."""

    backend = "gloo"

    def __init__(self, network: Network, rank: int) -> None:
        self.network, self.rank, self.world = network, rank, len(network.hosts)
        self.device = rank
        self.names: Sequence[str] = []

    def gather(self, _kind: type[T], local: Callable[[], T], what: str, *, extra_s: float = 0.0) -> list[T]:
        network = self.network
        network.barrier.wait(60)
        if self.rank == 0:
            if what == "the kernel":
                network.kernels.append([])
            if what.startswith("round "):
                network.rounds.append(network.current)
        network.barrier.wait(60)
        network.results[self.rank] = local()
        network.barrier.wait(60)
        return list(network.results)


class Traffic:
    """Counts, and sends nothing."""

    def __init__(self, group: Ranks) -> None:
        self.rank = group.rank
        self.num_sent = 0

    def serve(self, _peer: int) -> None:
        pass


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Network], ProbeResult]:
    """Runs a probe; all ranks must return the same."""

    def run_probe(network: Network) -> ProbeResult:
        monkeypatch.setattr(module, "Traffic", Traffic)
        monkeypatch.setattr(module, "measure_link", network.measure_link)
        monkeypatch.setattr(module, "measure_kernel", network.kernel)
        monkeypatch.setattr(module, "partners", network.partners)
        monkeypatch.setattr(module, "measure_all_reduces", lambda *_: ())
        monkeypatch.setattr(
            module, "measure_concurrent", lambda _group, _traffic, flows, _what: [f.alone for f in flows]
        )
        monkeypatch.setattr(
            module,
            "describe_rank",
            lambda rank, _device, _host: RankInfo(rank=rank, host=network.hosts[rank], kind="x", memory_bytes=None),
        )
        results: dict[int, ProbeResult | BaseException] = {}

        def run_rank(rank: int) -> None:
            try:
                results[rank] = probe(cast("Group", Ranks(network, rank)))
            except BaseException as error:
                network.barrier.abort()
                results[rank] = error

        threads = [threading.Thread(target=run_rank, args=(rank,)) for rank in range(len(network.hosts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [results[rank] for rank in range(len(threads))]
        for item in found:
            if isinstance(item, BaseException) and not isinstance(item, threading.BrokenBarrierError):
                raise item
        complete = [item for item in found if isinstance(item, ProbeResult)]
        assert len(complete) == len(found)
        assert all(item.links == complete[0].links and item.notes == complete[0].notes for item in complete)
        return complete[0]

    return run_probe


def rates_of(result: ProbeResult) -> dict[Pair, float]:
    return {(link.source, link.target): link.fit.bandwidth for link in result.links}


def test_every_link_is_measured_in_its_own_direction(run: Callable[[Network], ProbeResult]) -> None:
    network = Network("aaaabb", lambda link, _others: ALONE + 0.1 * link[0] + 0.01 * link[1])
    result = run(network)
    links = [(one, other) for one in range(6) for other in range(6) if one != other]
    assert rates_of(result) == pytest.approx({link: ALONE + 0.1 * link[0] + 0.01 * link[1] for link in links})
    assert [(link.source, link.target) for link in result.links] == sorted(links)
    assert all(link.num_bytes == 10 for link in result.links)
    assert result.notes == ()
    # Inside hosts and between them, the fastest pair that was measured beside others is measured again, alone.
    measured = [pair for pairing in network.rounds for pair in pairing]
    assert len(measured) == 15 + 2
    # A flow set counts as a round, too.
    assert result.num_rounds == len(network.rounds) + len(result.flow_sets)
    assert result.num_bytes == 10 * 2 * len(measured)
    # No rank is in two pairs of a round.
    assert all(len({rank for pair in pairing for rank in pair}) == 2 * len(pairing) for pairing in network.rounds)


def test_hosts_are_measured_one_pair_at_a_time_until_their_interfaces_are_known(
    run: Callable[[Network], ProbeResult],
) -> None:
    network = Network("aabb")
    result = run(network)
    across = [
        pair for pairing in network.rounds for pair in pairing if network.hosts[pair[0]] != network.hosts[pair[1]]
    ]
    assert sorted(set(across)) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    # The interfaces of two hosts cannot be told apart.
    assert [(item.host, item.outgoing, len(item.flows)) for item in result.flow_sets] == [
        ("a", True, 2),
        ("a", False, 2),
    ]
    for item in result.flow_sets:
        ends = {flow.source if item.outgoing else flow.target for flow in item.flows}
        assert {network.hosts[rank] for rank in ends} == {item.host}
        assert all(flow.alone == flow.busy == ALONE for flow in item.flows)


def test_links_that_disturb_each_other_are_measured_alone(run: Callable[[Network], ProbeResult]) -> None:
    network = Network("aaaa", lambda _link, others: ALONE / (1 + len(others)))
    result = run(network)
    assert set(rates_of(result).values()) == {ALONE}
    assert not any(link.is_concurrent for link in result.links)
    assert result.notes == ()


def test_a_little_disturbance_is_accepted(run: Callable[[Network], ProbeResult]) -> None:
    network = Network("aaaa", lambda _link, others: ALONE / (1 + 0.1 * len(others)))
    result = run(network)
    assert sorted(rates_of(result).values()) == pytest.approx([ALONE / 1.1] * 10 + [ALONE] * 2)


def test_one_link_that_is_disturbed_is_measured_again(run: Callable[[Network], ProbeResult]) -> None:
    slow = (1, 2)

    def rate(link: Pair, others: Round) -> float:
        return ALONE / 2 if tuple(sorted(link)) == slow and others else ALONE

    assert set(rates_of(run(Network("aaaa", rate))).values()) == {ALONE}
    # A link that is slow alone, too, stays so.
    always = Network("aaaa", lambda link, _others: ALONE / 2 if tuple(sorted(link)) == slow else ALONE)
    found = rates_of(run(always))
    assert {link for link, value in found.items() if value == ALONE / 2} == {slow, slow[::-1]}


def test_too_many_disturbed_links_are_noted(run: Callable[[Network], ProbeResult]) -> None:
    hosts = "a" * 12
    assert len(hosts) * (len(hosts) - 1) // 2 - 1 > MAX_REPEATED
    result = run(Network(hosts, lambda _link, others: ALONE / 2 if others else ALONE))
    (note,) = result.notes
    assert note.startswith("The fastest link is 2.00 times as fast alone as with other pairs, and 65 pairs are too ")
    assert sorted(rates_of(result).values()) == [ALONE / 2] * 130 + [ALONE] * 2


@pytest.mark.parametrize(
    ("residuals", "kept", "num_measured"),
    [
        ((0.04, 0.0), 0.04, 1),  # steady enough
        ((0.2, 0.01), 0.01, 2),
        ((0.2, 0.3), 0.2, 2),  # the better of both
    ],
)
def test_unsteady_links_are_measured_again(
    run: Callable[[Network], ProbeResult], residuals: tuple[float, float], kept: float, num_measured: int
) -> None:
    # The second direction of a link between hosts, which is in a round of its own.
    network = Network("ab", residuals={(1, 0): residuals})
    result = run(network)
    assert [link.fit.residual for link in result.links] == [0.0, kept]
    assert [pairing for pairing in network.rounds if pairing] == [((0, 1),)] * num_measured


def test_the_worst_links_are_measured_again_first(run: Callable[[Network], ProbeResult]) -> None:
    pairs = [(one, other) for one in range(7) for other in range(one + 1, 7)]
    # The fastest pair is measured again anyhow, by the check for disturbance.
    residuals = {pair: [0.1 + 0.01 * number] * 2 for number, pair in enumerate(pairs)}
    network = Network("a" * 7, residuals={pair: [*values[:1], values[0], 0.0] for pair, values in residuals.items()})
    run(network)
    counts = {pair: sum(pair in pairing for pairing in network.rounds) for pair in pairs}
    again = [pair for pair in pairs if counts[pair] > 1 and pair != pairs[0]]
    assert again == pairs[-MAX_UNSTEADY:]


def test_devices_take_turns_and_slow_ones_are_measured_again(run: Callable[[Network], ProbeResult]) -> None:
    network = Network("aabb", speeds={2: (0.5, 0.6, 0.4)})
    result = run(network)
    assert [info.flops_per_s for info in result.rank_infos] == [1.0] * 4
    # Rank 2 was slow three times, and then not.
    assert network.kernels == [[0], [1], [2], [3], [2], [2], [2]]
    network = Network("ab", speeds={1: (0.5, 0.6, 0.4, 0.3)})
    assert [info.flops_per_s for info in run(network).rank_infos] == [1.0, 0.6]
    assert network.kernels == [[0], [1]] + [[1]] * (MAX_ATTEMPTS - 1)


def test_of_many_devices_one_of_each_host_takes_its_turn(run: Callable[[Network], ProbeResult]) -> None:
    hosts = "ab" * (MAX_TURNS // 2) + "a"
    network = Network(hosts)
    run(network)
    expected = [[2 * turn, 2 * turn + 1] for turn in range(MAX_TURNS // 2)] + [[MAX_TURNS]]
    assert [sorted(ranks) for ranks in network.kernels] == expected


@pytest.mark.parametrize("world", [1, MAX_RANKS + 1])
def test_the_number_of_ranks_has_limits(world: int) -> None:
    group = Ranks(Network("ab"), 0)
    group.world = world
    with pytest.raises(InputError, match=f"number of ranks must be 2 to 1,024, not {world:,}"):
        probe(cast("Group", group))


def test_hosts_of_one_name_are_numbered() -> None:
    hosts = ["x\0net1", "x\0net2", "x\0net1", "y\0net1", "z"]
    infos = [RankInfo(rank=rank, host=host, kind="x", memory_bytes=None) for rank, host in enumerate(hosts)]
    assert [info.host for info in _name_hosts(infos)] == ["x-0", "x-1", "x-0", "y", "z"]


def test_rates_while_all_transfers_are_active() -> None:
    flow = Flow(source=0, target=1, alone=1e6)
    # 50 messages of 8 kB would take 0.4 s alone.
    assert message_bytes(flow) == 8000
    assert message_bytes(Flow(source=0, target=1, alone=1.0)) == 256
    # At half the rate; only the first 0.32 s count, in which 20 messages arrive after the first.
    assert busy_rate(flow, [1.0 + 0.016 * number for number in range(51)]) == pytest.approx(8000 / 0.016)
    # Afterwards the other transfers may have ended.
    arrived_s = [1.0 + 0.016 * number for number in range(20)] + [
        1.304 + 0.017 + 0.001 * number for number in range(31)
    ]
    assert busy_rate(flow, arrived_s) == pytest.approx(8000 / 0.016)
    # A message that comes later than that is waited for.
    assert busy_rate(flow, [1.0, 3.0, 3.1]) == pytest.approx(8000 / 2.0)
