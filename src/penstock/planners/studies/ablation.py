"""Ablation: what each switch of the search space is worth. Runs auto with all of them, without each one, and with none.

A search does not always find the best plan: in a smaller search space it may find one that it missed in a larger one.
That plan is valid in the larger space too. So every row takes the best plan of all rows within its search space, and a
larger space never looks worse.

Bi-Partition's gain is the difference that two sets of cuts make for a pipeline without replication, with all transfers
priced.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import NamedTuple

import msgspec

from penstock.plan import Plan
from penstock.planners.bounds import lower_bound
from penstock.planners.outcome import Outcome, outcome_of
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace

FIXED_SCHEDULE = "1f1b"
EVERYTHING, NO_REPLICATION, ORDINARY = "everything", "no replication", "ordinary pipeline"


class Setting(NamedTuple):
    """A search space and its display name."""

    name: str
    search_space: SearchSpace


SETTINGS = (
    Setting(EVERYTHING, SearchSpace()),
    Setting(NO_REPLICATION, SearchSpace(replication=False)),
    Setting("one set of cuts", SearchSpace(two_cuts=False)),
    Setting("no virtual stages", SearchSpace(virtual_stages=False)),
    Setting("no backward split", SearchSpace(split_backward=False)),
    Setting("no recomputation", SearchSpace(recomputation=False)),
    Setting("fixed device order", SearchSpace(device_order=False)),
    Setting(f"fixed schedule ({FIXED_SCHEDULE})", SearchSpace(schedule=FIXED_SCHEDULE)),
    Setting(ORDINARY, SearchSpace(replication=False, two_cuts=False)),
    Setting(
        "none of them",
        SearchSpace(
            replication=False,
            two_cuts=False,
            virtual_stages=False,
            recomputation=False,
            sharded_optimizer=False,
            split_backward=False,
            device_order=False,
            schedule=FIXED_SCHEDULE,
        ),
    ),
)


class AblationRow(msgspec.Struct, frozen=True, kw_only=True):
    """The best plan within a search space."""

    name: str
    search_space: SearchSpace
    found_with: str
    """The name of the row whose search found it."""
    bound_s: float
    """Lower bound on the iteration time of every plan within the search space."""
    times_as_long: float | None
    """Iteration time relative to the full search space; None if that is 0."""
    plan: Plan
    outcome: Outcome


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Iteration times of pipelines without replication, with one and with two sets of cuts."""

    one_set_s: float
    two_sets_s: float

    @property
    def fraction(self) -> float:
        """The fraction of the iteration time that two sets of cuts save."""
        return 1 - self.two_sets_s / self.one_set_s if self.one_set_s > 0 else 0.0


class Ablation(msgspec.Struct, frozen=True, kw_only=True):
    """Plans of auto in the full search space, in smaller ones, and in the smallest."""

    rows: tuple[AblationRow, ...]
    bipartition: Gain | None
    """None if one of the two plans does not fit into memory."""


def ablate(problem: Problem, find: Callable[[Setting], Plan]) -> Ablation:
    """Plan with every setting.

    Args:
        problem: The problem to plan.
        find: Runs auto within a setting's search space.

    Returns:
        One row per setting, the full search space first.
    """
    profile, cluster = problem.profile, problem.cluster
    plans = {setting: find(setting) for setting in SETTINGS}
    outcomes = {setting: outcome_of(plan, profile, cluster) for setting, plan in plans.items()}
    rows: list[AblationRow] = []
    for setting in SETTINGS:
        within = [other for other in SETTINGS if is_within(other.search_space, setting.search_space)]
        best = min(within, key=lambda other: outcomes[other].rank)
        bound = lower_bound(
            profile,
            cluster,
            problem.num_microbatches,
            problem.micro_batch_size,
            replication=setting.search_space.replication,
            remote_backward=setting.search_space.two_cuts,
            sharded_optimizer=setting.search_space.sharded_optimizer,
        )
        least = rows[0].outcome.iteration_s if rows else outcomes[best].iteration_s
        rows.append(
            AblationRow(
                name=setting.name,
                search_space=setting.search_space,
                found_with=best.name,
                bound_s=bound.seconds,
                times_as_long=outcomes[best].iteration_s / least if least > 0 else None,
                plan=plans[best],
                outcome=outcomes[best],
            )
        )
    return Ablation(rows=tuple(rows), bipartition=_gain({row.name: row.outcome for row in rows}))


def is_within(less: SearchSpace, more: SearchSpace) -> bool:
    """Whether every plan within the first search space is within the second.

    >>> is_within(SearchSpace(replication=False), SearchSpace()), is_within(SearchSpace(), SearchSpace(two_cuts=False))
    (True, False)
    """
    switches = [field.name for field in fields(SearchSpace) if field.name not in ("schedule", "maps")]
    return (
        all(getattr(less, name) <= getattr(more, name) for name in switches)
        and (more.schedule is None or less.schedule == more.schedule)
        and (more.maps is None or (less.maps is not None and less.maps <= more.maps))
    )


def _gain(outcomes: dict[str, Outcome]) -> Gain | None:
    one, two = outcomes[ORDINARY], outcomes[NO_REPLICATION]
    return Gain(one_set_s=one.iteration_s, two_sets_s=two.iteration_s) if one.fits and two.fits else None
