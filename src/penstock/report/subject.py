"""What a report shows: a timeline, and as much as is known of what it came from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.plan import Plan
from penstock.plan.pricing import Costs
from penstock.planners.bounds import Bound, lower_bound
from penstock.profile import Profile
from penstock.simulate import Evaluation
from penstock.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Shown:
    """One timeline of a report. Without costs and profile there are no limits, links and words about them."""

    name: str
    timeline: Timeline
    costs: Costs | None = None
    profile: Profile | None = None

    @property
    def plan(self) -> Plan:
        """The plan that was simulated or run."""
        return self.timeline.program.plan

    @property
    def is_measured(self) -> bool:
        """Whether it really happened."""
        return self.timeline.origin == "measured"

    def is_same_work(self, other: "Shown") -> bool:
        """Whether both are of the same program. Those of different models may have the same actions."""
        return self.problem == other.problem and self.timeline.program.same_actions(other.timeline.program)

    @cached_property
    def problem(self) -> tuple[str, str]:
        """Which model and which cluster it is for, by their contents."""
        profile = self.plan.profile if self.profile is None else self.profile
        cluster = self.plan.cluster if self.costs is None else self.costs.cluster
        return profile.digest, cluster.digest

    @cached_property
    def bound(self) -> Bound | None:
        """What no plan of the same problem can beat by the profile's times. A run has times of its own."""
        if self.costs is None or self.profile is None:
            return None
        return lower_bound(self.profile, self.costs.cluster, self.plan.num_microbatches, self.plan.micro_batch_size)


Showable = Shown | Evaluation | Timeline


def as_shown(item: Showable, profile: Profile | None = None) -> Shown:
    """A timeline or an evaluation as a report shows it, named after its plan."""
    if isinstance(item, Shown):
        return item
    timeline = item if isinstance(item, Timeline) else item.timeline
    plan = timeline.program.plan
    name = f"{plan.planner} + {plan.schedule}" + (", measured" if timeline.origin == "measured" else "")
    return Shown(name, timeline, None if isinstance(item, Timeline) else item.costs, profile)


def with_own_names(items: Sequence[Shown]) -> list[Shown]:
    """The same with names that tell them apart: later ones of one name get a number.

    >>> [item.name for item in with_own_names([Shown("a", None), Shown("b", None), Shown("a", None)])]
    ['a', 'b', 'a (2)']
    """
    taken: set[str] = set()
    found = []
    for item in items:
        name, number = item.name, 1
        while name in taken:
            number += 1
            name = f"{item.name} ({number})"
        taken.add(name)
        found.append(replace(item, name=name))
    return found


def pairs(items: Sequence[Shown]) -> list[tuple[int, int]]:
    """Places of predicted and measured timelines of the same program; every measured one is in at most one pair."""
    found = []
    for place, item in enumerate(items):
        if not item.is_measured:
            continue
        for other_place, other in enumerate(items):
            if not other.is_measured and other.is_same_work(item):
                found.append((other_place, place))
                break
    return found
