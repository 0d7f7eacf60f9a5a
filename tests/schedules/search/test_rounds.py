"""The zero-bubble heuristic: the compiled rounds are the plain ones, and schedule auto is never slower."""

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.program.actions import Kind
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.program.types import Program, program_from_arrays
from penstock.schedules.methods.auto import best_order
from penstock.schedules.search.rounds import is_straight, rounds
from penstock.schedules.search.scoring import score_program
from tests.support.plain_rounds import ALL_CHOICES, PlainRounds
from tests.support.reach import reach, reaches
from tests.support.small import hand_plan, one_host
from tests.support.thoroughness import examples

Seconds = list[tuple[float, float, float]]
"""F, I and W of every stage."""
SECONDS = st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.0])
KEPT = 1000


def straight_costs(seconds: Seconds, num: int, latency_s: float, memory: int | None) -> Costs:
    """A straight pipeline of these stages; each micro-batch keeps `KEPT` bytes on every stage."""
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=0,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=KEPT),),
            times=(Times(kind="k", micro_batch_size=1, forward_s=f, input_grad_s=i, weight_grad_s=w),),
        )
        for number, (f, i, w) in enumerate(seconds)
    )
    profile = Profile(name="straight", micro_batch_size=1, units=units)
    limit = None if memory is None else memory * KEPT
    cluster = one_host(len(seconds), bandwidth=1e9, latency_s=latency_s, memory_bytes=limit)
    names = [f"d{number}" for number in range(len(seconds))]
    stages = [Stage(start=k, stop=k + 1, forward=on(name), backward=on(name)) for k, name in enumerate(names)]
    return price(hand_plan(profile, cluster, stages, num_microbatches=num), profile, cluster)


def plain_programs(costs: Costs, seconds: Seconds, latency_s: float, most_kept: int) -> list[Program]:
    size = len(seconds)
    down, up = [0.0] + [latency_s] * (size - 1), [latency_s] * (size - 1) + [0.0]
    forward_s, input_grad_s, weight_grad_s = zip(*seconds, strict=True)
    programs = []
    for choices in ALL_CHOICES:
        run = PlainRounds(
            forward_s, input_grad_s, weight_grad_s, down, up, [most_kept] * size, costs.num_microbatches, choices
        )
        orders = run.run()
        counts = np.array([len(order) for order in orders])
        kinds = np.array([int(kind) for order in orders for kind, _ in order], dtype=np.int8)
        microbatches = np.array([microbatch for order in orders for _, microbatch in order])
        names = [device.name for device in costs.cluster.devices]
        programs.append(
            program_from_arrays(costs.plan, names, counts, kinds, np.repeat(np.arange(size), counts), microbatches)
        )
    return programs


@reaches(several=0.3, differ=0.1, tight=0.1)
@examples(60)
@given(
    st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=6),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.25, 2.0]),
    st.integers(1, 9),
)
def test_the_compiled_rounds_are_the_plain_ones(seconds: Seconds, num: int, latency_s: float, most_kept: int) -> None:
    costs = straight_costs(seconds, num, latency_s, None)
    assert is_straight(costs)
    plain = plain_programs(costs, seconds, latency_s, most_kept)
    compiled = list(rounds(costs, np.full(costs.num_devices, float(most_kept * KEPT))))
    assert len(compiled) == len(plain)
    for one, other in zip(compiled, plain, strict=True):
        assert one.same_actions(other)
    prove(lower(compiled[0], costs), costs)
    reach("several", len(seconds) > 1)
    reach("differ", any(not one.same_actions(compiled[0]) for one in compiled))
    reach("tight", most_kept < min(num, len(seconds)))


@pytest.mark.parametrize(("num_stages", "times", "memory"), list(product((4, 8, 16), (1, 2, 4), (1, 2))))
def test_auto_is_never_slower_than_the_published_heuristic(num_stages: int, times: int, memory: int) -> None:
    """On equal stages, on equal stages with latency, and on unequal ones; memory for p and 2 p micro-batches."""
    random = Random(num_stages * times)
    unequal = [tuple(random.uniform(0.7, 1.3) for _ in range(3)) for _ in range(num_stages)]
    cases: list[tuple[Seconds, float]] = [
        ([(1.0, 1.0, 1.0)] * num_stages, 0.0),
        ([(1.0, 1.2, 0.8)] * num_stages, 0.05),
        (unequal, 0.02),  # type: ignore[list-item]
    ]
    for seconds, latency_s in cases:
        costs = straight_costs(seconds, times * num_stages, latency_s, memory * num_stages)
        scores = [
            score_program(program, costs) for program in plain_programs(costs, seconds, latency_s, memory * num_stages)
        ]
        best = min(scores)
        assert best.over_bytes == 0
        found, program = best_order(costs)
        assert found.over_bytes == 0
        assert found.seconds <= best.seconds * 1.001
        assert (program.kind != Kind.B).any()
