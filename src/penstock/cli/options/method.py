"""How a plan is to be made: the planner, the schedule, the shape; and making it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.cli.options.search_space import AutoOptions, auto_options
from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import Shape
from penstock.planners import DEFAULT_PLANNER, Problem, SearchSpace, fixed_schedule, make_problem
from penstock.profile import Profile

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Method:
    """What a planner is asked, but for the model and the cluster."""

    planner: str = DEFAULT_PLANNER
    schedule: str | None = None
    pipeline_depth: int | None = None
    chunks: int | None = None
    shape: Shape | None = None
    split_backward: bool = False
    recompute: bool = False
    searching: AutoOptions = field(default_factory=AutoOptions)

    def problem(
        self,
        profile: Profile,
        cluster: Cluster,
        num_microbatches: int,
        rows: int | None = None,
        *,
        profile_source: str = "",
        cluster_source: str = "",
    ) -> Problem:
        """The problem that the planner is asked."""
        return make_problem(
            profile,
            cluster,
            num_microbatches,
            planner=self.planner,
            schedule=self.schedule,
            micro_batch_size=rows,
            split_backward=self.split_backward,
            recompute=self.recompute,
            pipeline_depth=self.pipeline_depth,
            num_chunks=self.chunks,
            shape=self.shape,
            profile_source=profile_source,
            cluster_source=cluster_source,
        )

    @property
    def search_space(self) -> SearchSpace:
        """What auto may use."""
        return replace(self.searching.search_space, schedule=fixed_schedule(self.schedule))

    def check(self) -> None:
        """Auto chooses what the others must be told, within its freedoms."""
        told = {
            "--shape": self.shape is not None,
            "--chunks": self.chunks is not None,
            "--split-backward": self.split_backward,
            "--recompute": self.recompute,
        }
        if self.planner == "auto" and any(told.values()):
            names = " and ".join(name for name, is_given in told.items() if is_given)
            hint = "Leave it out, or name another planner, such as --planner balanced."
            raise InputError(f"the planner auto chooses this itself: {names}", hint=hint)


def method_options(verb: F) -> F:
    """--planner, --schedule, what the plan should look like, and auto's options; the verb gets them as `method`."""

    @wraps(verb)
    def wrapped(
        planner: str,
        schedule: str | None,
        pipeline_depth: int | None,
        chunks: int | None,
        shape: str | None,
        split_backward: bool,
        recompute: bool,
        searching: AutoOptions,
        **options: Any,
    ) -> Any:
        laid = Shape(shape) if shape else None
        method = Method(planner, schedule, pipeline_depth, chunks, laid, split_backward, recompute, searching)
        method.check()
        return verb(method=method, **options)

    for option in (
        auto_options,
        click.option("--recompute", is_flag=True, help="Keep only each stage's input, and run its forward again."),
        click.option("--split-backward", is_flag=True, help="Run the backward as two jobs under any schedule."),
        click.option(
            "--shape", type=click.Choice([shape.value for shape in Shape]), help="How stages lie on the devices."
        ),
        click.option("--chunks", type=int, help="Stages a device; what the schedule is made for, if not given."),
        click.option("--pipeline-depth", type=int, help="Devices in the row; all, or as many as units, if not given."),
        click.option("--schedule", help="How to order the work; what the planner plans for, if not given."),
        click.option("--planner", default=DEFAULT_PLANNER, show_default=True, help="How to cut and place."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
