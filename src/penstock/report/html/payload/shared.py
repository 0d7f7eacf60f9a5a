"""What several timelines of a report share: clusters, units, and what other planners give. Each is there once."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from penstock.profile import Profile, fit
from penstock.report.analysis import Baseline, baselines
from penstock.report.html.payload.cluster import cluster_data
from penstock.report.subject import Shown

T = TypeVar("T")


class Distinct(Generic[T]):
    """Values by key, each made once, and their numbers."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, make: Callable[[], T]) -> int:
        """The number of the value, which is made if it is not there yet."""
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(make())
        return self._numbers[key]


class Shared:
    """For each timeline the numbers of what it shares with others; None where it is not known."""

    def __init__(self, items: Sequence[Shown], *, with_baselines: bool) -> None:
        self._items = items
        self._with_baselines = with_baselines
        self.clusters: Distinct[dict[str, Any]] = Distinct()
        self.units: Distinct[dict[str, Any]] = Distinct()
        self.problems: Distinct[list[Baseline]] = Distinct()
        self.tasks: Distinct[None] = Distinct()

    def cluster(self, item: Shown) -> int | None:
        """The cluster, with the links that any of the timelines on it uses."""
        if item.costs is None:
            return None
        cluster = item.costs.cluster
        return self.clusters.number(cluster.digest, lambda: cluster_data(cluster, self._on(cluster.digest)))

    def model(self, item: Shown) -> int | None:
        """The units of the model."""
        profile, rows = item.profile, item.plan.micro_batch_size
        if profile is None:
            return None
        return self.units.number((profile.digest, rows), lambda: _units(profile, rows))

    def problem(self, item: Shown) -> int | None:
        """The model, the cluster, and how many micro-batches: what other planners were asked."""
        costs, profile, plan = item.costs, item.profile, item.plan
        if costs is None or profile is None:
            return None
        key = profile.digest, costs.cluster.digest, plan.num_microbatches, plan.micro_batch_size
        return self.problems.number(key, lambda: baselines(costs, profile) if self._with_baselines else [])

    def task(self, item: Shown) -> int:
        """The model, the cluster, and how many rows an iteration has: times of one task can be compared."""
        key = *item.problem, item.plan.num_microbatches * item.plan.micro_batch_size
        return self.tasks.number(key, lambda: None)

    def baselines(self, item: Shown) -> list[Baseline]:
        """What other planners make of the same problem."""
        number = self.problem(item)
        return [] if number is None else self.problems.values[number]

    def _on(self, digest: str) -> list[Shown]:
        return [item for item in self._items if item.costs is not None and item.costs.cluster.digest == digest]


def _units(profile: Profile, rows: int) -> dict[str, Any]:
    """Names and seconds of the units, for so many rows on the first kind that was profiled."""
    sizes = fit(profile, profile.kinds[0]).at(rows)

    def short(values: Any) -> list[float]:
        return [float(f"{value:.4g}") for value in values.tolist()]

    return {
        "kind": profile.kinds[0],
        "names": [unit.name for unit in profile.units],
        "forward": short(sizes.forward_s),
        "backward": short(sizes.input_grad_s + sizes.weight_grad_s),
    }
