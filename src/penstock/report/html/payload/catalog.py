"""The catalog of a report: the clusters, layers and baselines of its timelines. Each is stored once."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.profile import Profile, fit
from penstock.report.analysis import Baseline, evaluate_baselines
from penstock.report.html.payload.cluster import cluster_data
from penstock.report.subject import ReportSubject

T = TypeVar("T")


class Distinct(Generic[T]):
    """Values by key. Each is made once and has an index."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._indices: dict[Hashable, int] = {}

    def index(self, key: Hashable, make: Callable[[], T]) -> int:
        """The index of the value for a key, which is made at the first call."""
        if key not in self._indices:
            self._indices[key] = len(self.values)
            self.values.append(make())
        return self._indices[key]


class CatalogProblem(NamedTuple):
    """The baselines and the lower bound of one problem."""

    baselines: list[Baseline]
    bound_s: float


class Catalog:
    """For each subject the indices of the parts that it shares with others; None where they are not known."""

    def __init__(self, items: Sequence[ReportSubject], *, with_baselines: bool) -> None:
        self._items = items
        self._with_baselines = with_baselines
        self.clusters: Distinct[dict[str, Any]] = Distinct()
        self.layers: Distinct[dict[str, Any]] = Distinct()
        self.problems: Distinct[CatalogProblem] = Distinct()
        self.tasks: Distinct[None] = Distinct()

    def cluster(self, item: ReportSubject) -> int | None:
        """The cluster, with the links that any of the timelines on it uses."""
        if item.costs is None:
            return None
        cluster = item.costs.cluster
        return self.clusters.index(cluster.digest, lambda: cluster_data(cluster, self._on(cluster.digest)))

    def model(self, item: ReportSubject) -> int | None:
        """The layers of the model."""
        profile, num_rows = item.profile, item.plan.micro_batch_size
        if profile is None:
            return None
        return self.layers.index((profile.digest, num_rows), lambda: _layers(profile, num_rows))

    def problem(self, item: ReportSubject) -> int | None:
        """The model, the cluster and the micro-batches: the problem of the baselines."""
        costs, profile, plan, bound = item.costs, item.profile, item.plan, item.bound
        if costs is None or profile is None or bound is None:
            return None
        key = profile.digest, costs.cluster.digest, plan.num_microbatches, plan.micro_batch_size

        def make() -> CatalogProblem:
            return CatalogProblem(evaluate_baselines(costs, profile) if self._with_baselines else [], bound.seconds)

        return self.problems.index(key, make)

    def task(self, item: ReportSubject) -> int:
        """The model, the cluster and the global batch size: times of one task can be compared."""
        key = *item.problem, item.plan.num_microbatches * item.plan.micro_batch_size
        return self.tasks.index(key, lambda: None)

    def baselines(self, item: ReportSubject) -> list[Baseline]:
        """The plans of the baseline planners for the same problem."""
        index = self.problem(item)
        return [] if index is None else self.problems.values[index].baselines

    def _on(self, digest: str) -> list[ReportSubject]:
        return [item for item in self._items if item.costs is not None and item.costs.cluster.digest == digest]


def _layers(profile: Profile, num_rows: int) -> dict[str, Any]:
    """Names and seconds of the layers for a micro-batch size, on the first device kind of the profile."""
    sizes = fit(profile, profile.kinds[0]).at(num_rows)

    def round_values(values: Any) -> list[float]:
        return [float(f"{value:.4g}") for value in values.tolist()]

    return {
        "kind": profile.kinds[0],
        "names": [unit.name for unit in profile.units],
        "forward": round_values(sizes.forward_s),
        "backward": round_values(sizes.input_grad_s + sizes.weight_grad_s),
    }
