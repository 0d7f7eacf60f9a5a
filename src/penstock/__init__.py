"""Penstock plans and runs synchronous pipeline-parallel training of neural networks.

    import penstock

    profile = penstock.load_profile("gpt2-xl", kinds=["RTX-3090"], micro_batch_size=4, sequence=1024)
    cluster = penstock.load_cluster("8 x RTX-3090 @ 12 GB/s")
    plan = penstock.plan(profile, cluster, 16, planner="balanced", schedule="zb_h1")
    evaluation = penstock.evaluate(plan, profile, cluster)     # proved, then simulated
    evaluation.timeline.iteration_s, evaluation.proof.peak_bytes

All public names are here; they are imported on first use. Some functions have the name of their package, such as
`plan`: `penstock.plan` is the function, and modules inside the package are imported by their full name, as in `from
penstock.plan.types import Stage`.
"""

import logging
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.cluster import Cluster, Device, Host, Link, Wire, load_cluster
    from penstock.errors import (
        DeadlockError,
        FileError,
        InputError,
        MemoryLimitError,
        MismatchError,
        PeerLost,
        PenstockError,
        ProfileWarning,
        ProofError,
        RunError,
        RuntimeTimeout,
    )
    from penstock.plan import Plan, Replica, Shape, Stage, load_plan, save_plan
    from penstock.plan.pricing import Costs, price
    from penstock.planners import PLANNERS, SearchSpace, plan
    from penstock.profile import Overhead, Profile, Recipe, Sizes, Spread, Tie, Times, Unit, load_profile, save_profile
    from penstock.profiler import profile
    from penstock.program import Action, Kind, Program, load_program, save_program
    from penstock.program.lowering import lower
    from penstock.program.proof import Proof, prove
    from penstock.report.html import save_report
    from penstock.runtime import Pipeline
    from penstock.runtime.state import materialize, pretrained
    from penstock.schedules import SCHEDULES, schedule
    from penstock.simulate.evaluation import Evaluation, evaluate
    from penstock.simulate.prediction import Interval, Prediction, predict
    from penstock.simulate.simulator import simulate
    from penstock.timeline import (
        Timeline,
        bubble_fraction,
        critical_path,
        device_uses,
        load_timeline,
        save_timeline,
        waits,
    )

_HOMES = {
    "cluster.load": ("load_cluster",),
    "cluster.types": ("Cluster", "Device", "Host", "Link", "Wire"),
    "errors": (
        "DeadlockError",
        "FileError",
        "InputError",
        "MemoryLimitError",
        "MismatchError",
        "PeerLost",
        "PenstockError",
        "ProfileWarning",
        "ProofError",
        "RunError",
        "RuntimeTimeout",
    ),
    "plan.pricing.costs": ("Costs",),
    "plan.pricing.pricing": ("price",),
    "plan.shapes": ("Shape",),
    "plan.types": ("Replica", "Plan", "Stage", "load_plan", "save_plan"),
    "planners.registry": ("PLANNERS",),
    "planners.search_space": ("SearchSpace",),
    "planners.api": ("plan",),
    "profile.load": ("load_profile", "save_profile"),
    "profile.recipe": ("Recipe",),
    "profile.spread.spread": ("Spread",),
    "profile.types": ("Overhead", "Profile", "Sizes", "Tie", "Times", "Unit"),
    "program.actions": ("Action", "Kind"),
    "program.lowering.lowering": ("lower",),
    "program.proof.proof": ("Proof", "prove"),
    "program.slices.slice_file": ("save_slices",),
    "program.types": ("Program", "load_program", "save_program"),
    "report.html.page": ("save_report",),
    "runtime.state.meta_device": ("materialize",),
    "runtime.state.pretrained_weights": ("pretrained",),
    "runtime.pipeline": ("Pipeline",),
    "profiler.profile_model": ("profile",),
    "schedules.registry": ("SCHEDULES", "schedule"),
    "simulate.evaluation": ("Evaluation", "evaluate"),
    "simulate.prediction": ("Interval", "Prediction", "predict"),
    "simulate.simulator": ("simulate",),
    "timeline.files": ("load_timeline", "save_timeline"),
    "timeline.summary": ("bubble_fraction", "critical_path", "device_uses", "waits"),
    "timeline.types": ("Timeline",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"
__all__ = [
    "PLANNERS",
    "SCHEDULES",
    "Action",
    "Cluster",
    "Costs",
    "DeadlockError",
    "Device",
    "Evaluation",
    "FileError",
    "Host",
    "InputError",
    "Interval",
    "Kind",
    "Link",
    "MemoryLimitError",
    "MismatchError",
    "Overhead",
    "PeerLost",
    "PenstockError",
    "Pipeline",
    "Plan",
    "Prediction",
    "Profile",
    "ProfileWarning",
    "Program",
    "Proof",
    "ProofError",
    "Recipe",
    "Replica",
    "RunError",
    "RuntimeTimeout",
    "SearchSpace",
    "Shape",
    "Sizes",
    "Spread",
    "Stage",
    "Tie",
    "Timeline",
    "Times",
    "Unit",
    "Wire",
    "__version__",
    "bubble_fraction",
    "critical_path",
    "device_uses",
    "evaluate",
    "load_cluster",
    "load_plan",
    "load_profile",
    "load_program",
    "load_timeline",
    "lower",
    "materialize",
    "plan",
    "predict",
    "pretrained",
    "price",
    "profile",
    "prove",
    "save_plan",
    "save_profile",
    "save_program",
    "save_report",
    "save_slices",
    "save_timeline",
    "schedule",
    "simulate",
    "waits",
]


class _Namespace(ModuleType):
    """Keeps `penstock.plan`, `penstock.profile` and `penstock.simulate` the functions, not the packages."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _FUNCTIONS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


_FUNCTIONS = ("plan", "profile", "simulate")
sys.modules[__name__].__class__ = _Namespace


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(f"penstock.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
