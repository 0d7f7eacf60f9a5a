"""Options of planning: the planner, the schedule and the shape of the plan."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar, get_args

import click

from penstock.cli.options.search_space import AutoOptions, auto_options
from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.export import find_engine, restrict
from penstock.plan import Shape
from penstock.planners import DEFAULT_PLANNER, Problem, SearchSpace, fixed_schedule, make_problem
from penstock.profile import Cuts, Profile

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Method:
    """How to plan: everything but the model and the cluster."""

    planner: str = DEFAULT_PLANNER
    schedule: str | None = None
    pipeline_depth: int | None = None
    chunks: int | None = None
    shape: Shape | None = None
    split_backward: bool = False
    recompute: bool = False
    cuts: Cuts = "layers"
    searching: AutoOptions = field(default_factory=AutoOptions)
    engine: str | None = None

    def problem(
        self,
        profile: Profile,
        cluster: Cluster,
        num_microbatches: int,
        micro_batch_size: int | None = None,
        *,
        profile_source: str = "",
        cluster_source: str = "",
    ) -> Problem:
        """The planning problem for a profile and a cluster."""
        return make_problem(
            profile,
            cluster,
            num_microbatches,
            planner=self.planner,
            schedule=self.schedule,
            micro_batch_size=micro_batch_size,
            split_backward=self.split_backward,
            recompute=self.recompute,
            pipeline_depth=self.pipeline_depth,
            num_chunks=self.chunks,
            shape=self.shape,
            profile_source=profile_source,
            cluster_source=cluster_source,
            cuts=self.cuts,
            messages=None if self.engine is None else find_engine(self.engine).messages,
            search_space=self.searching.search_space,
        )

    @property
    def search_space(self) -> SearchSpace:
        """The search space, within what the engine can run."""
        search_space = replace(self.searching.search_space, schedule=fixed_schedule(self.schedule))
        return search_space if self.engine is None else restrict(search_space, find_engine(self.engine).limits)

    def for_engine(self, name: str) -> "Method":
        """The same method, restricted to plans that an engine can run."""
        limits = find_engine(name).limits
        cuts: Cuts = max(self.cuts, limits.cuts, key=get_args(Cuts).index)
        return replace(self, engine=name, schedule=self.schedule or limits.schedule, cuts=cuts)

    def check(self) -> None:
        """Raise an error if an option fixes what the planner auto chooses itself."""
        fixed = {
            "--shape": self.shape is not None,
            "--chunks": self.chunks is not None,
            "--split-backward": self.split_backward,
            "--recompute": self.recompute,
        }
        if self.planner == "auto" and any(fixed.values()):
            names = " and ".join(name for name, is_set in fixed.items() if is_set)
            hint = "Leave it out, or use another planner, such as --planner balanced."
            raise InputError(f"{names} cannot be used with the planner auto, which chooses this itself", hint=hint)


def method_options(verb: F) -> F:
    """Add --planner, --schedule, the plan's shape and auto's options; the command gets them as `method`."""

    @wraps(verb)
    def wrapped(
        planner: str,
        schedule: str | None,
        pipeline_depth: int | None,
        chunks: int | None,
        shape: str | None,
        split_backward: bool,
        recompute: bool,
        whole_blocks: bool,
        searching: AutoOptions,
        **options: Any,
    ) -> Any:
        method = Method(
            planner,
            schedule,
            pipeline_depth,
            chunks,
            Shape(shape) if shape else None,
            split_backward,
            recompute,
            "whole" if whole_blocks else "layers",
            searching,
        )
        method.check()
        return verb(method=method, **options)

    for option in (
        auto_options,
        click.option("--whole-blocks", is_flag=True, help="Cut between the numbered blocks of the model only."),
        click.option(
            "--recompute", is_flag=True, help="Recompute each stage's forward in the backward, from its input."
        ),
        click.option(
            "--split-backward",
            is_flag=True,
            help="Split the backward into input and weight gradients, under any schedule.",
        ),
        click.option(
            "--shape",
            type=click.Choice([shape.value for shape in Shape], case_sensitive=False),
            help="Assignment of stages to devices.",
        ),
        click.option("--chunks", type=int, help="Stages per device [default: that of the schedule]."),
        click.option(
            "--pipeline-depth", type=int, help="Number of devices in the pipeline [default: all, at most the layers]."
        ),
        click.option("--schedule", help="Schedule that orders the actions [default: that of the planner]."),
        click.option(
            "--planner", default=DEFAULT_PLANNER, show_default=True, help="Planner that cuts the model into stages."
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
