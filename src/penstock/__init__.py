"""Penstock plans and runs synchronous pipeline-parallel training of neural networks.

    import penstock

    profile = penstock.load_profile("gpt2-xl", kinds=["RTX-3090"], rows=4, sequence=1024)
    cluster = penstock.load_cluster("8 x RTX-3090 @ 12 GB/s")
    plan = penstock.plan(profile, cluster, 16, planner="balanced", schedule="zb_h1")
    found = penstock.evaluate(plan, profile, cluster)          # proved, then simulated
    found.timeline.iteration_s, found.proof.peak_bytes

Everything public is here; names load when they are first used, so that importing costs little. (Some functions are
called as the packages that hold them, such as `plan`: `penstock.plan` is the function, and modules inside the package
are imported in full, as in `from penstock.plan.types import Segment`.)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.cluster.load import load_cluster
    from penstock.cluster.types import Cluster, Device, Host, Link, Wire
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
    from penstock.plan.costs import Costs
    from penstock.plan.pricing import price
    from penstock.plan.shapes import Shape
    from penstock.plan.types import Member, Plan, Segment, load_plan, save_plan
    from penstock.planners import PLANNERS
    from penstock.planners.freedoms import Freedoms
    from penstock.planners.make import plan
    from penstock.profile.load import load_profile, save_profile
    from penstock.profile.types import Overhead, Profile, Sizes, Tie, Times, Unit
    from penstock.program.actions import Action, Kind
    from penstock.program.lowering import lower
    from penstock.program.proof import Proof, prove
    from penstock.program.types import Program, load_program, save_program
    from penstock.report.html_page import save_report
    from penstock.runtime.materialise import materialise
    from penstock.runtime.pipeline import Pipeline
    from penstock.runtime.profiling import profile
    from penstock.schedules import SCHEDULES, schedule
    from penstock.simulate.evaluate import Evaluation, evaluate
    from penstock.simulate.fast import simulate
    from penstock.timeline.files import load_timeline, save_timeline
    from penstock.timeline.summary import bubble_fraction, critical_path, device_uses, waits
    from penstock.timeline.types import Timeline

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
    "plan.costs": ("Costs",),
    "plan.pricing": ("price",),
    "plan.shapes": ("Shape",),
    "plan.types": ("Member", "Plan", "Segment", "load_plan", "save_plan"),
    "planners": ("PLANNERS",),
    "planners.freedoms": ("Freedoms",),
    "planners.make": ("plan",),
    "profile.load": ("load_profile", "save_profile"),
    "profile.types": ("Overhead", "Profile", "Sizes", "Tie", "Times", "Unit"),
    "program.actions": ("Action", "Kind"),
    "program.lowering": ("lower",),
    "program.proof": ("Proof", "prove"),
    "program.types": ("Program", "load_program", "save_program"),
    "report.html_page": ("save_report",),
    "runtime.materialise": ("materialise",),
    "runtime.pipeline": ("Pipeline",),
    "runtime.profiling": ("profile",),
    "schedules": ("SCHEDULES", "schedule"),
    "simulate.evaluate": ("Evaluation", "evaluate"),
    "simulate.fast": ("simulate",),
    "timeline.files": ("load_timeline", "save_timeline"),
    "timeline.summary": ("bubble_fraction", "critical_path", "device_uses", "waits"),
    "timeline.types": ("Timeline",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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
    "Freedoms",
    "Host",
    "InputError",
    "Kind",
    "Link",
    "Member",
    "MemoryLimitError",
    "MismatchError",
    "Overhead",
    "PeerLost",
    "PenstockError",
    "Pipeline",
    "Plan",
    "Profile",
    "ProfileWarning",
    "Program",
    "Proof",
    "ProofError",
    "RunError",
    "RuntimeTimeout",
    "Segment",
    "Shape",
    "Sizes",
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
    "materialise",
    "plan",
    "price",
    "profile",
    "prove",
    "save_plan",
    "save_profile",
    "save_program",
    "save_report",
    "save_timeline",
    "schedule",
    "simulate",
    "waits",
]

# The packages of these names are loaded once, and taken off again: so their functions can have the names.
for _package in ("plan", "profile", "simulate"):
    import_module(f"penstock.{_package}")
    del globals()[_package]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(f"penstock.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
