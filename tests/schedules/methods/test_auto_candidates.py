"""The orders that `auto` tries: each way of ordering has a case here that it alone wins."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

import numpy as np
import pytest

from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.plan.shapes import Shape
from penstock.plan.types import Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.program.types import Program
from penstock.schedules.methods.auto import candidates, rooms
from penstock.schedules.ordering.clock import with_split
from penstock.schedules.registry import schedule
from penstock.schedules.search.greedy import Greedy, Rules
from penstock.schedules.search.scoring import Score, score_program
from tests.support.small import hand_plan, one_host

T = TypeVar("T")

GREEDY = {
    "split, patience 0.5": (True, 0.5),
    "split, patience 0": (True, 0.0),
    "split, patience 1": (True, 1.0),
    "fused": (False, 0.0),
}
"""Whether the list scheduler splits backwards, and how long it lets a device wait before it computes a W."""
FUSED = ("1f1b", "pe", "interleaved", "gpipe")
SPLIT = ("zb_h1", "zb_v")


def uneven_costs(seed: int, shape: Shape, is_split_dear: bool) -> Costs:
    """A pipeline of two to four devices with one or two stages each, whose times differ by up to a factor of three."""
    random = Random(seed).random

    def choose(options: Sequence[T]) -> T:
        return options[int(random() * len(options))]

    num_devices, num_chunks = choose((2, 3, 4)), 2 if shape is Shape.V else choose((1, 1, 2))
    stage_devices = shape.stage_devices(num_devices, num_chunks)
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=0,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=choose((0, 1, 4)), saved_bytes=100),),
            times=(
                Times(
                    kind="k",
                    micro_batch_size=1,
                    forward_s=choose((1.0, 2.0, 3.0)),
                    input_grad_s=choose((1.0, 2.0, 3.0)),
                    weight_grad_s=choose((1.0, 2.0, 3.0)),
                ),
            ),
        )
        for number in range(len(stage_devices))
    )
    profile = Profile(name="uneven", micro_batch_size=1, units=units, gradient_ratio=1.0, optimizer_ratio=2.0)
    cluster = one_host(num_devices, bandwidth=4.0, memory_bytes=choose((None, None, 100 * len(stage_devices) + 50)))
    stages = [
        Stage(start=number, stop=number + 1, forward=on(f"d{device}"), backward=on(f"d{device}"))
        for number, device in enumerate(stage_devices)
    ]
    plan = hand_plan(profile, cluster, stages, num_microbatches=choose((3, 4, 5, 6)))
    costs = price(plan, profile, cluster)
    if not is_split_dear:
        return costs
    more = 0.25 * costs.weight_grad_s + 0.5
    dear = replace(costs, weight_grad_s=costs.weight_grad_s + more, joined_s=costs.joined_s + more)
    dear.__dict__["flows"] = costs.flows
    return dear


def scores(costs: Costs) -> dict[str, Score]:
    """The best score of each way of ordering."""
    fused, split = with_split(costs, False), with_split(costs, True)
    named = {name: score_program(schedule(fused, name), costs) for name in FUSED + SPLIT}
    named |= {f"{name}, split": score_program(schedule(split, name), costs) for name in FUSED}
    return named | {
        name: min(score_program(program, costs) for program in greedy_orders(costs, *rule))
        for name, rule in GREEDY.items()
    }


def greedy_orders(
    costs: Costs, is_split: bool, patience: float, later_first: Sequence[bool] = (True, False)
) -> Iterator[Program]:
    greedy = Greedy(costs)
    for room in rooms(costs, greedy.kept):
        for first in later_first:
            program = greedy.run(Rules(is_split, room, patience, first))
            if program is not None:
                yield program


def check_wins(costs: Costs, best: Score, others: Score) -> None:
    """The best order is faster than all others by more than rounding, and `auto` has it among its candidates."""
    assert best.over_bytes == 0
    assert others.over_bytes > 0 or best.seconds < others.seconds - 1e-6
    assert min(score_program(program, costs) for program in candidates(costs)) == best


@pytest.mark.parametrize(
    ("way", "seed", "shape", "is_split_dear"),
    [
        ("split, patience 0.5", 20, Shape.LOOP, False),
        ("split, patience 0", 0, Shape.LOOP, True),
        ("split, patience 1", 1, Shape.LOOP, False),
        ("fused", 1, Shape.V, True),
        ("1f1b", 14, Shape.LOOP, True),
        ("interleaved", 98, Shape.LOOP, True),
        ("interleaved, split", 27, Shape.LOOP, False),
        ("gpipe", 113, Shape.LOOP, True),
        ("zb_h1", 10, Shape.LOOP, False),
        ("zb_v", 0, Shape.V, False),
    ],
)
def test_a_case_that_one_way_alone_wins(way: str, seed: int, shape: Shape, is_split_dear: bool) -> None:
    costs = uneven_costs(seed, shape, is_split_dear)
    by_way = scores(costs)
    best = by_way.pop(way)
    check_wins(costs, best, min(by_way.values()))


@pytest.mark.parametrize(("later_first", "seed"), [(True, 40), (False, 6)])
def test_a_case_that_one_order_of_chunks_alone_wins(later_first: bool, seed: int) -> None:
    """Later chunks of a device first, or earlier ones."""
    costs = uneven_costs(seed, Shape.LOOP, False)
    assert (np.bincount(costs.forward_device) > 1).any()
    ways = {
        first: min(
            score_program(program, costs)
            for rule in GREEDY.values()
            for program in greedy_orders(costs, *rule, later_first=[first])
        )
        for first in (True, False)
    }
    named = min(score for name, score in scores(costs).items() if name not in GREEDY)
    check_wins(costs, ways[later_first], min(ways[not later_first], named))
