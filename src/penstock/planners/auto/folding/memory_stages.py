"""Starts for equal devices with little memory: ranks with unequal numbers of replicas, each recomputed or not.

A regular grid gives every stage as many replicas, so its first and its last stage, with the embedding and the head,
set the memory of all others. Here every rank of the pipeline takes as many devices as it needs. For a limit T on the
seconds of a rank, dynamic programming from the last rank to the first finds the ranks with the least sum of seconds,
each within T and within memory. The iteration then takes about M T and once that sum, the fill.

- *Straight*: a rank has a run of layers. It keeps as many micro-batches as run behind it, about their seconds over T.
- *Wrapped*: the same, with the first layer on the last rank: for large or tied embeddings.
- *V*: a rank has a run of layers, and the same run counted from the end. So one rank has both the embedding and the
  head. It keeps as many micro-batches as there are ranks, or a half or a third of them, as ZB-V, V-Half and V-Min do.

A recomputed rank keeps its inputs only, and takes a forward more. Communication is ignored; the search moves the cuts.
Cost: O(layers^2 devices replicas) for each limit.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan import Plan, on
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from penstock.profile import fit

LIMITS = (1.02, 1.05, 1.08, 1.12, 1.16, 1.2, 1.25, 1.3, 1.4, 1.5, 1.7, 2.0)
"""Limits on the seconds of a rank, as multiples of all work evenly divided."""
REPLICAS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Numbers of replicas of a rank to try."""
NUM_BEST = 3
"""How many pipelines to return for each form and portion of the memory, the fastest by an estimate."""
KEPT_OF_V = (1.0, 0.5, 1 / 3)
"""Micro-batches that the ranks of a V keep, as parts of the number of ranks."""
PORTIONS = (0.8, 0.9, 1.0, 1.1, 1.2)
"""Parts of the memory to plan with. Buffers of messages need memory too, and schedules may keep fewer micro-batches."""
CLOSE = 1e-6

Form = Literal["straight", "wrapped", "v"]
FORMS: tuple[Form, ...] = ("straight", "wrapped", "v")


class Chain(NamedTuple):
    """Costs of one replica, over numbers of replicas, then layers (straight) or pairs of layers (V).

    `starting` and `stopping` are the bytes that enter a rank which starts and stops there; the others are running sums.
    """

    work: Floats
    forward: Floats
    saved: Floats
    static: Floats
    starting: Floats
    stopping: Floats


class Limits(NamedTuple):
    """What every rank must meet, and how many micro-batches it keeps."""

    seconds: float
    bytes: float
    num_microbatches: int
    kept: float
    """Micro-batches that every rank keeps, beside those that run behind it."""
    kept_behind: float
    """Micro-batches that it keeps for each T of seconds behind it."""


class Rank(NamedTuple):
    """Where a rank stops, its replicas, and whether it is recomputed."""

    stop: int
    replicas: int
    recompute: bool


def memory_stages(problem: Problem, search_space: SearchSpace) -> Iterator[Plan]:
    """Yield pipelines of unequal ranks on equal devices: for several limits, those with the least fill.

    Args:
        problem: A problem whose devices are all alike.
        search_space: Features that plans may use. Without replication or unequal replicas there is nothing to choose.
    """
    if not (search_space.replication and search_space.unequal_replicas):
        return
    num = problem.cluster.num_devices
    counts = [count for count in REPLICAS if count <= num]
    if not search_space.part_rows:
        counts = [count for count in counts if problem.rows_per_microbatch % count == 0]
    recomputes = sorted({problem.recompute, search_space.recomputation and search_space.part_recomputation})
    memory = problem.cluster.devices[0].memory_bytes
    rooms = (np.inf,) if memory is None else tuple(portion * memory for portion in PORTIONS)
    several = search_space.virtual_stages and problem.profile.num_units > 3
    for form in FORMS[: None if several else 1]:
        chain = make_chain(problem, counts, form)
        for room, kept in product(rooms, KEPT_OF_V if form == "v" else (None,)):
            divided: dict[tuple[Rank, ...], float] = {}
            num_ranks = float(num)
            for portion in LIMITS:
                limit_s = portion * float(chain.work[0, -1]) / num
                micro_batches = (1.0, 1.0) if kept is None else (1.0 + kept * num_ranks, 0.0)
                limits = Limits(limit_s, room, problem.num_microbatches, *micro_batches)
                ranks = divide(chain, counts, recomputes, num, limits)
                if ranks is not None:
                    num_ranks = len(ranks)
                    divided[tuple(ranks)] = iteration_s(chain, counts, ranks, problem.num_microbatches)
            for best in sorted(divided, key=lambda each: divided[each])[:NUM_BEST]:
                yield _plan(problem, best, form)


def iteration_s(chain: Chain, counts: list[int], ranks: Sequence[Rank], num_microbatches: int) -> float:
    """About the iteration time: every micro-batch in the slowest rank, and once the other ranks."""
    seconds, start = [], 0
    for rank in ranks:
        index = counts.index(rank.replicas)
        parts = (chain.work, chain.forward) if rank.recompute else (chain.work,)
        seconds.append(float(sum(sums[index, rank.stop] - sums[index, start] for sums in parts)))
        start = rank.stop
    return (num_microbatches - 1) * max(seconds) + sum(seconds)


def make_chain(problem: Problem, counts: list[int], form: Form) -> Chain:
    """The costs of a problem with equal devices, for each number of replicas."""
    profile, clock = problem.profile, problem.clock
    held = 1.0 + profile.gradient_ratio + profile.optimizer_ratio
    half, is_v = (profile.num_units + 1) // 2, form == "v"

    def sums(values: Floats) -> Floats:
        if form == "wrapped":
            values = np.concatenate([[0.0], values[1:-1], [values[-1] + values[0]]])
        elif is_v:
            behind = np.append(values[half:], 0.0) if profile.num_units % 2 else values[half:]
            values = values[:half] + behind[::-1]
        return np.concatenate([[0.0], np.cumsum(values)])

    def per_replica(count: int) -> tuple[Floats, ...]:
        sizes = fit(profile, profile.kinds[0]).at(problem.rows_per_microbatch / count)
        forward, *backward = (
            np.diff(clock.prefix(0, 1 / count, part)) for part in ("forward_s", "input_grad_s", "weight_grad_s")
        )
        first = profile.input_bytes / count * problem.rows_per_microbatch / profile.micro_batch_size
        inputs = np.concatenate([[first], sizes.cut_bytes[:-1]])
        entering, leaving = (inputs[:half], np.append(0.0, inputs[::-1][:half])) if is_v else (inputs, 0.0 * inputs)
        return (
            sums(forward + sum(backward)),
            sums(forward),
            sums(sizes.saved_bytes),
            sums(held * sizes.parameter_bytes),
            np.append(entering, 0.0),
            leaving if is_v else np.append(leaving, 0.0),
        )

    return Chain(*(np.array(rows) for rows in zip(*map(per_replica, counts), strict=True)))


def divide(chain: Chain, counts: list[int], recomputes: list[bool], num: int, limits: Limits) -> list[Rank] | None:
    """The ranks with the least sum of seconds, each within the limits; None if there are none.

    Args:
        chain: The costs.
        counts: Numbers of replicas to choose from.
        recomputes: Whether ranks may be recomputed, and may not.
        num: The number of devices.
        limits: The limits of every rank.
    """
    from penstock.planners.auto.folding.memory_stages_kernel import run_divide

    ways = [(index, count, form) for index, count in enumerate(counts) for form in recomputes]
    rest, stops, chosen = run_divide(chain, np.array(ways, dtype=np.int64), num, limits)
    return _ranks(rest, stops, chosen, [(count, form) for _, count, form in ways])


def divide_plain(
    chain: Chain, counts: list[int], recomputes: list[bool], num: int, limits: Limits
) -> list[Rank] | None:
    """The same, without compilation: the reference."""
    size = chain.work.shape[1] - 1
    rest = np.full((size + 1, num + 1), np.inf)
    rest[size] = 0.0
    stops: Ints = np.zeros((size + 1, num + 1), dtype=np.int64)
    chosen: Ints = np.zeros((size + 1, num + 1), dtype=np.int64)
    ways = [(index, count, form) for index, count in enumerate(counts) for form in recomputes]
    for start in range(size - 1, -1, -1):
        for left in range(1, num + 1):
            for way, (index, count, recompute) in enumerate(ways):
                for stop in range(start + 1, size + 1) if count <= left else ():
                    work, forward, saved, static = (sums[index, stop] - sums[index, start] for sums in chain[:4])
                    seconds = work + forward if recompute else work
                    behind = rest[stop, left - count]
                    if seconds > limits.seconds or not behind < np.inf:
                        continue
                    kept = limits.kept + limits.kept_behind * np.ceil(behind / limits.seconds - CLOSE)
                    kept = min(float(limits.num_microbatches), kept)
                    inputs = chain.starting[index, start] + chain.stopping[index, stop]
                    needed = static + (kept * inputs + saved if recompute else kept * saved)
                    if needed <= limits.bytes and behind + seconds < rest[start, left]:
                        rest[start, left] = behind + seconds
                        stops[start, left], chosen[start, left] = stop, way
    return _ranks(rest, stops, chosen, [(count, form) for _, count, form in ways])


def _ranks(rest: Floats, stops: Ints, chosen: Ints, ways: list[tuple[int, bool]]) -> list[Rank] | None:
    size, left = len(rest) - 1, rest.shape[1] - 1
    if not np.isfinite(rest[0, left]):
        return None
    ranks: list[Rank] = []
    start = 0
    while start < size:
        count, recompute = ways[int(chosen[start, left])]
        stop = int(stops[start, left])
        ranks.append(Rank(stop, count, recompute))
        start, left = stop, left - count
    return ranks


def _plan(problem: Problem, ranks: Sequence[Rank], form: Form) -> Plan:
    """The plan of the ranks; devices that are left over stay idle."""
    names = iter(device.name for device in problem.cluster.devices)
    groups = [on(*(next(names) for _ in range(rank.replicas))) for rank in ranks]
    cuts = [0, *(rank.stop for rank in ranks)]
    recompute = [rank.recompute for rank in ranks]
    if form == "wrapped" and len(ranks) > 1 and cuts[1] > 1:
        cuts, groups, recompute = [0, 1, *cuts[1:]], [groups[-1], *groups], [recompute[0], *recompute]
    elif form == "v":
        num_units = problem.profile.num_units
        cuts += [num_units - cut for cut in cuts[-2::-1]]
        groups, recompute = groups + groups[::-1], recompute + recompute[::-1]
        if cuts[len(ranks)] == cuts[len(ranks) + 1]:  # the last rank has one layer
            del cuts[len(ranks)], groups[len(ranks)], recompute[len(ranks)]
    plan = problem.plan("auto", cuts, groups)
    stages = [
        msgspec.structs.replace(stage, recompute=form) for stage, form in zip(plan.stages, recompute, strict=True)
    ]
    return msgspec.structs.replace(plan, stages=tuple(stages))
