"""Auto: the best order found for a plan, within every device's memory.

For unequal stages on unequal links there is no closed form. Auto tries the other schedules, the zero-bubble heuristic
(rounds.py) and list scheduling (greedy.py) with different memory limits, with fused and split backwards, and with more
or less patience. Each order is estimated (estimate.py); estimates are lower bounds. From the best estimate on, orders
that fit into memory are simulated until no estimate is below the best. Backwards of the first stage are fused where
splitting has a cost (fused_backward.py). The most promising orders are polished (polish.py). So auto is never worse
than any of them; with memory for twice the stages, list scheduling meets the zero-bubble bound on equal stages.

Where memory is limited, list scheduling is tried with exactly the room that fits and with less (memory_fit.py). So auto
finds an order that fits wherever one of its candidates fits at a smaller limit.

The schedule auto_fused is the same with fused backwards only, for engines that cannot split them.

If nothing fits, auto returns the order with the least excess, and the proof names the device that is short of memory.
Cost: about thirty estimates and a few simulations; for very large programs only a few orders are tried.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from penstock.arrays import Floats
from penstock.plan.pricing import Costs
from penstock.program import Kind, Program
from penstock.schedules.methods.gpipe import gpipe
from penstock.schedules.methods.interleaved import interleaved
from penstock.schedules.methods.one_f_one_b import one_f_one_b
from penstock.schedules.methods.pe import pe
from penstock.schedules.methods.v_half import v_half
from penstock.schedules.methods.v_min import v_min
from penstock.schedules.methods.zb_h1 import zb_h1
from penstock.schedules.methods.zb_v import zb_v
from penstock.schedules.ordering import join_first, with_split
from penstock.schedules.search import (
    Estimator,
    Greedy,
    LimitedGreedy,
    MemoryFit,
    Rules,
    Score,
    is_straight,
    polished,
    rounds,
    score_program,
)

WHOLE: tuple[Callable[[Costs], Program], ...] = (one_f_one_b, pe, interleaved, gpipe)
"""Schedules that split the backward only if the plan requires it."""
SPLIT: tuple[Callable[[Costs], Program], ...] = (zb_h1, zb_v, v_half, v_min)
POLISHING = 1.25
"""Polishing has never gained this factor."""
LOWER = 1.1
"""Orders that are slower by this factor before polishing are not polished within lower limits."""
MAX_LOWER = 8
"""How many different orders are polished within lower limits."""
MEDIUM = 30_000
"""Jobs above which list scheduling is tried with fewer rules."""
LARGE = 200_000
"""Jobs above which only a few orders are tried."""
LESS = (0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 1.125, 1.375, 1.75, 2.5)
"""Further amounts of memory for plans with memory limits, as multiples of what 1F1B's fullest device keeps."""
NUM_NEAREST = 8
"""Orders to choose from if none fits: those that keep least beyond the limits."""
MAX_FITTING = 16
"""Orders that fit into memory, the fastest by their estimates, among which auto chooses and from which it polishes."""


def auto(costs: Costs) -> Program:
    """The fastest order found that fits into memory."""
    return best_order(costs)[1]


def auto_fused(costs: Costs) -> Program:
    """The fastest order found that fits into memory with every backward fused."""
    return best_order(costs, split=False)[1]


def best_order(costs: Costs, *, split: bool = True, beat: Score | None = None) -> tuple[Score, Program]:
    """The fastest order found, and its score.

    An order that cannot beat the score `beat`, or is far from it, is not polished.
    """
    estimator = Estimator(costs)
    memory = MemoryFit(costs, estimator)
    greedy = Greedy(costs)
    tried = _estimated(candidates(costs, split, greedy), costs, estimator)
    floor_s = estimator.floor_s()
    lower: list[float] = []
    to_beat = beat.seconds if beat is not None and beat.over_bytes == 0 else np.inf
    if memory.is_limited and floor_s < to_beat and min(seconds for seconds, _ in tried) < POLISHING * to_beat:
        limited, ways = LimitedGreedy(greedy, memory, estimator), greedy_rules(costs, split)
        lower = limited.smaller()
        if _num_jobs(costs) <= MEDIUM:
            tried += limited.orders(ways, rooms(costs, greedy.kept, LESS))
        if to_beat == np.inf and not any(memory.fits(program) for _, program in tried):
            tried += limited.last_orders(ways)
    tried.sort(key=lambda item: item[0])
    found = memory.first_fitting(tried, MAX_FITTING)
    best, chosen = best_of(found or memory.nearest(tried, NUM_NEAREST), costs)
    if best.is_refused:
        best, chosen = best_of(tried, costs)
    if not found:
        return best, chosen
    # Orders with fused backwards only are polished separately too, so that auto is never worse than auto_fused.
    fused = [item for item in tried if not (item[1].kind == Kind.I).any()]
    whole = memory.first_fitting(fused, MAX_FITTING) if len(fused) < len(tried) else []
    for starts in (found, whole) if whole else (found,):
        if best.over_bytes == 0 and (floor_s >= min(best.seconds, to_beat) or best.seconds > POLISHING * to_beat):
            break
        score, program = best_of(polished([program for _, program in starts], costs, estimator), costs)
        if score < best:
            best, chosen = score, program
    if best.seconds > POLISHING * to_beat:
        return best, chosen
    # What polishing reaches from an order that needs less memory may be faster: polish these within lower limits too.
    starts_seen = {id(found[0][1])}
    for less in lower:
        if floor_s >= min(best.seconds, to_beat) or len(starts_seen) > MAX_LOWER:
            break
        start = next((item for item in tried if memory.fits(item[1], less)), None)
        if start is None or start[0] >= LOWER * best.seconds:
            break
        if id(start[1]) in starts_seen:
            continue
        starts_seen.add(id(start[1]))
        score, program = best_of(polished([start[1]], costs, estimator, less), costs)
        if score < best:
            best, chosen = score, program
    return best, chosen


def _estimated(programs: Iterable[Program], costs: Costs, estimator: Estimator) -> list[tuple[float, Program]]:
    return [(estimator.seconds(program), program) for program in _with_joined(programs, costs)]


def _with_joined(programs: Iterable[Program], costs: Costs) -> Iterator[Program]:
    """The orders with the first stage's backwards fused where that costs less, in both ways."""
    for program in programs:
        found = join_first(program, costs)
        yield from (found.near,) if found.all is found.near else found


def best_of(found: Sequence[tuple[float, Program]], costs: Costs) -> tuple[Score, Program]:
    """The best of some orders, sorted by their estimates."""
    best, chosen = Score(np.inf, np.inf), found[0][1]
    for seconds, program in found:
        if best.over_bytes == 0 and seconds >= best.seconds:
            break
        score = score_program(program, costs)
        if score < best:
            best, chosen = score, program
    return best, chosen


def candidates(costs: Costs, split: bool = True, greedy: Greedy | None = None) -> Iterator[Program]:
    """Orders worth trying, the likely ones first."""
    whole = with_split(costs, False)
    is_large = _num_jobs(costs) > LARGE
    for order in WHOLE[: 1 if is_large else None]:
        yield order(whole)
    for order in SPLIT[: (1 if is_large else None) if split else 0]:
        yield order(whole)
    if split and not is_large:
        parted = with_split(costs, True)
        for order in WHOLE:
            yield order(parted)
    greedy = greedy or Greedy(costs)
    amounts, ways = rooms(costs, greedy.kept), greedy_rules(costs, split)
    if _num_jobs(costs) > MEDIUM:
        amounts = amounts[1:2] if is_large else amounts[:2]
    if split and not is_large and is_straight(costs):
        for room in {tuple(room.tolist()): room for room in (*amounts[:2], amounts[-1])}.values():
            yield from rounds(costs, room)
    seen: set[int] = set()
    for room in amounts:
        for rules in ways:
            program = greedy.run(rules._replace(room=room))
            if program is not None and id(program) not in seen:
                seen.add(id(program))
                yield program


def greedy_rules(costs: Costs, split: bool) -> list[Rules]:
    """The rules of list scheduling to try, without their room."""
    several = bool((np.bincount(costs.forward_device) > 1).any())
    ways = ((True, 0.5), (True, 0.0), (True, 1.0), (False, 0.0)) if split else ((False, 0.0),)
    later = (True, False) if several else (True,)
    if _num_jobs(costs) > MEDIUM:
        ways = ways[:1]
    if _num_jobs(costs) > LARGE:
        later = later[:1]
    unlimited = np.full(costs.num_devices, np.inf)
    return [Rules(apart, unlimited, patience, first) for apart, patience in ways for first in later]


def _num_jobs(costs: Costs) -> int:
    return 3 * costs.num_replicas * costs.num_microbatches


def rooms(costs: Costs, kept: Floats, multiples: Sequence[float] | None = None) -> list[Floats]:
    """Bytes that each device may keep: multiples of what 1F1B's fullest device keeps, up to all memory."""
    in_flight = np.minimum(costs.plan.num_stages - costs.replica_stage, costs.num_microbatches)
    fullest = float(np.bincount(costs.backward_device, weights=in_flight).max())
    num_held = np.maximum(np.bincount(costs.backward_device, minlength=costs.num_devices), 1)
    mean_kept = np.bincount(costs.backward_device, weights=kept, minlength=costs.num_devices) / num_held
    # Recomputed tensors need room too.
    again = ((costs.saved_bytes - costs.kept_bytes) * costs.recompute)[costs.replica_stage] * costs.share
    passing = np.zeros(costs.num_devices)
    np.maximum.at(passing, costs.backward_device, again)
    free = np.maximum(costs.memory_limit - costs.static_bytes - passing, 0.0)
    multiples = multiples or (1.0, 2.0, 1.5, 1.25, 3.0, float(costs.num_microbatches))
    return [np.minimum(multiple * fullest * mean_kept, free) for multiple in multiples]
