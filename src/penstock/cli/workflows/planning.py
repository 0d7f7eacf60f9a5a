"""Planning for `penstock plan`: chooses the numbers of micro-batches and devices if requested, and plans."""

from dataclasses import dataclass, field, replace
from typing import Any

from penstock.bundle import ProfileSource
from penstock.cli.console import Console
from penstock.cli.options import Amounts, Method
from penstock.cli.render import counts_data, show_counts, show_sizes, sizes_data
from penstock.cli.workflows.search import make_plan
from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import Plan
from penstock.plan.pricing import check_kinds
from penstock.planners import Problem, Solution, order_plan
from penstock.planners.studies import choose_devices, choose_microbatches, select_cluster
from penstock.profile import Profile, is_computed
from penstock.units import show_count, show_seconds


@dataclass(frozen=True)
class PlanResult:
    """A plan, and the problem that it solves: on the whole cluster, or on a part of it."""

    solution: Solution
    problem: Problem
    tried: dict[str, Any] = field(default_factory=dict)
    """The sizes or device counts that were compared, as data."""


def plan_problem(
    console: Console, source: ProfileSource, cluster: Cluster, cluster_source: str, amounts: Amounts, method: Method
) -> PlanResult:
    """Plan with the numbers of micro-batches and devices of the options, fixed or to be chosen."""
    counts = amounts.num_devices(cluster)
    if counts is not None and amounts.asks_for_microbatches and (len(counts) > 1 or amounts.under is not None):
        raise InputError(
            "-m auto cannot be used with --under or a range of --devices",
            hint="Pass a number to -m, or a single number to --devices without --under.",
        )
    profile = source.load()
    check_kinds(profile, cluster.devices)
    planning = _Planning(console, source, profile, cluster, cluster_source, amounts, method)
    if counts is not None:
        return planning.devices(counts)
    if amounts.asks_for_microbatches:
        return planning.microbatches(cluster)
    return planning.one(cluster)


@dataclass(frozen=True)
class _Planning:
    console: Console
    source: ProfileSource
    profile: Profile
    whole: Cluster
    cluster_source: str
    amounts: Amounts
    method: Method

    def problem(self, cluster: Cluster) -> Problem:
        """The problem with the given number of micro-batches."""
        return self.method.problem(
            self.profile,
            cluster,
            self.amounts.microbatches_of(self.profile.micro_batch_size),
            profile_source=self.source.text,
            cluster_source=self.cluster_source,
        )

    def one(self, cluster: Cluster) -> PlanResult:
        """Plan with nothing to choose."""
        problem = self.problem(cluster)
        return PlanResult(make_plan(self.console, self.method, problem), problem)

    def devices(self, counts: range) -> PlanResult:
        """Plan on the best number of devices of a range."""
        console, under_s = self.console, self.amounts.under_s
        if len(counts) == 1 and under_s is None:
            part = select_cluster(Problem(self.profile, self.whole, 1), counts[0])
            return self.microbatches(part) if self.amounts.asks_for_microbatches else self.one(part)

        def plan_on(part: Cluster) -> Plan:
            return make_plan(console, self.method, self.problem(part), what=show_count(part.num_devices, "device")).plan

        problem = Problem(self.profile, self.whole, self.amounts.microbatches_of(self.profile.micro_batch_size))
        choice = choose_devices(problem, counts, plan_on, under_s=under_s)
        show_counts(console, choice, under_s)
        if choice.best is None or choice.best.plan is None:
            fastest = min(
                (item for item in choice.counts if item.outcome and item.outcome.fits),
                key=lambda item: item.outcome.iteration_s if item.outcome else 0.0,
                default=None,
            )
            hint = (
                f"The fastest plan takes {show_seconds(fastest.outcome.iteration_s)} on "
                f"{show_count(fastest.num_devices, 'device')}."
                if fastest is not None and fastest.outcome is not None
                else "Use more devices, or a longer --under."
            )
            target = show_seconds(under_s or 0.0)
            what = f"no plan on {counts[0]} to {counts[-1]} devices has an iteration time under {target}"
            raise InputError(what, where="--under", hint=hint)
        part = select_cluster(problem, choice.best.num_devices)
        problem = self.problem(part)
        return PlanResult(order_plan(choice.best.plan, problem), problem, {"device_counts": counts_data(choice)})

    def microbatches(self, cluster: Cluster) -> PlanResult:
        """Plan with the best micro-batch size for the global batch size."""
        console, method, batch = self.console, self.method, self.amounts.global_batch_size
        assert batch is not None, "Amounts checks that"
        can_compute = is_computed(self.source.source)
        if can_compute and self.source.micro_batch_size is not None:
            raise InputError("-m auto chooses the micro-batch size", where="--micro-batch-size", hint="Leave it out.")
        problems: dict[int, Problem] = {}

        def profile_at(micro_batch_size: int) -> Profile:
            return replace(self.source, micro_batch_size=micro_batch_size).load()

        def plan_one(problem: Problem) -> Plan:
            micro_batch_size = problem.rows_per_microbatch
            # The source that a plan names must load again, whatever the plan's micro-batch size.
            source = replace(
                self.source, micro_batch_size=micro_batch_size if can_compute else self.profile.micro_batch_size
            )
            problems[micro_batch_size] = method.problem(
                problem.profile,
                problem.cluster,
                problem.num_microbatches,
                micro_batch_size,
                profile_source=source.text,
                cluster_source=self.cluster_source,
            )
            return make_plan(
                console,
                method,
                problems[micro_batch_size],
                what=f"micro-batches of {show_count(micro_batch_size, 'row')}",
            ).plan

        choice = choose_microbatches(
            self.profile, cluster, batch, plan_one, profile_at=profile_at if can_compute else None
        )
        show_sizes(console, choice)
        assert choice.best.plan is not None, "the best size has a plan"
        problem = problems[choice.best.micro_batch_size]
        return PlanResult(order_plan(choice.best.plan, problem), problem, {"microbatch_sizes": sizes_data(choice)})
