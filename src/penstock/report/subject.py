"""The subject of a report: a timeline, with its costs and its profile where they are known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.plan import Plan
from penstock.plan.pricing import Costs
from penstock.planners.bounds import Bound, lower_bound
from penstock.profile import Profile
from penstock.simulate import Evaluation, Interval, predict
from penstock.timeline import Timeline


@dataclass(frozen=True, eq=False)
class ReportSubject:
    """One timeline of a report.

    Args:
        name: The name under which the report shows the timeline.
        timeline: A simulated or measured timeline.
        costs: The priced plan. Without it the report has no memory limits and no links.
        profile: The profile of the model. Without it the report has no layers, no bound and no suggested changes.
        interval: The predicted interval of the iteration time, of a simulated timeline.
    """

    name: str
    timeline: Timeline
    costs: Costs | None = None
    profile: Profile | None = None
    interval: Interval | None = None

    @property
    def plan(self) -> Plan:
        """The plan that was simulated or run."""
        return self.timeline.program.plan

    @property
    def is_measured(self) -> bool:
        """Whether the timeline comes from a real run."""
        return self.timeline.origin == "measured"

    def is_same_work(self, other: "ReportSubject") -> bool:
        """Whether both run the same program on the same problem. Two models can have the same actions."""
        return self.problem == other.problem and self.timeline.program.same_actions(other.timeline.program)

    @cached_property
    def problem(self) -> tuple[str, str]:
        """Digests of the profile and of the cluster."""
        profile = self.plan.profile if self.profile is None else self.profile
        cluster = self.plan.cluster if self.costs is None else self.costs.cluster
        return profile.digest, cluster.digest

    @cached_property
    def bound(self) -> Bound | None:
        """The lower bound of the problem by the profile's times. It does not hold for measured times."""
        if self.costs is None or self.profile is None:
            return None
        return lower_bound(self.profile, self.costs.cluster, self.plan.num_microbatches, self.plan.micro_batch_size)


SubjectLike = ReportSubject | Evaluation | Timeline


def as_subject(item: SubjectLike, profile: Profile | None = None) -> ReportSubject:
    """Wrap a timeline or an evaluation as a report subject that is named after its plan."""
    if isinstance(item, ReportSubject):
        return item
    timeline = item if isinstance(item, Timeline) else item.timeline
    plan = timeline.program.plan
    name = f"{plan.planner} + {plan.schedule}" + (", measured" if timeline.origin == "measured" else "")
    if isinstance(item, Timeline):
        return ReportSubject(name, timeline, None, profile)
    interval = predict(item.proof, profile).interval if profile is not None else None
    return ReportSubject(name, timeline, item.costs, profile, interval)


def with_unique_names(subjects: Sequence[ReportSubject]) -> list[ReportSubject]:
    """Number the subjects that share a name, from the second on.

    Args:
        subjects: The subjects of a report, in order.

    Returns:
        Copies of the subjects with distinct names.

    >>> [subject.name for subject in with_unique_names([ReportSubject(name, None) for name in "aba"])]
    ['a', 'b', 'a (2)']
    """
    taken: set[str] = set()
    renamed = []
    for subject in subjects:
        name, number = subject.name, 1
        while name in taken:
            number += 1
            name = f"{subject.name} ({number})"
        taken.add(name)
        renamed.append(replace(subject, name=name))
    return renamed


def prediction_pairs(subjects: Sequence[ReportSubject]) -> list[tuple[int, int]]:
    """Indices (predicted, measured) of subjects with the same program; each measured one is in at most one pair."""
    pairs = []
    for index, subject in enumerate(subjects):
        if not subject.is_measured:
            continue
        for other_index, other in enumerate(subjects):
            if not other.is_measured and other.is_same_work(subject):
                pairs.append((other_index, index))
                break
    return pairs
