"""What `penstock` offers: the names, that they load late, and that planning needs no torch."""

import importlib.metadata
import subprocess
import sys
from collections.abc import Mapping

import pytest

import penstock

NAMES = [
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


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_names() -> None:
    assert penstock.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_resolves(name: str) -> None:
    value = getattr(penstock, name)
    if name == "__version__":
        assert value == importlib.metadata.version("penstock")
    elif name.isupper():
        assert isinstance(value, Mapping)
        assert {"auto"} < value.keys()
    else:
        assert isinstance(value, type) == name[0].isupper()
        assert (value.__name__, callable(value)) == (name, True)
        assert value.__module__.startswith("penstock.")
        assert value.__doc__


def test_dir() -> None:
    assert dir(penstock) == sorted(NAMES)


def test_no_such_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        penstock.nothing  # noqa: B018


def test_every_name_is_the_one_at_its_home() -> None:
    for home, names in penstock._HOMES.items():
        module = importlib.import_module(f"penstock.{home}")
        for name in names:
            assert getattr(penstock, name) is getattr(module, name)


@pytest.mark.parametrize(
    "first",
    [
        "import penstock.plan.types",
        "import penstock.plan.pricing.pricing, penstock.simulate.simulator, penstock.planners.api",
        "from penstock.plan.types import Stage",
        "from penstock.simulate import evaluate",
        "import penstock.plan, penstock.simulate",
        "import penstock.profile.types, penstock.profile.row_costs",
        "from penstock.schedules.registry import schedule",
        "from penstock import *",
        "pass",
    ],
)
def test_functions_keep_their_names_from_packages(first: str) -> None:
    shown = run(
        f"{first}\nimport penstock\n"
        "print(callable(penstock.plan), callable(penstock.simulate), penstock.plan.__name__)\n"
        "import penstock.plan.pricing.costs, penstock.simulate.reference, penstock.profile.load\n"
        "print(callable(penstock.plan), callable(penstock.simulate), penstock.simulate.__name__)\n"
        "print(callable(penstock.profile), penstock.profile.__name__)"
    )
    assert shown.split() == ["True", "True", "plan", "True", "True", "simulate", "True", "profile"]


def test_importing_costs_little() -> None:
    assert (
        run("import sys, penstock; print([n for n in ('numba', 'numpy', 'torch', 'rich') if n in sys.modules])") == "[]"
    )


def test_planning_and_simulating_need_no_torch() -> None:
    shown = run(
        "import sys, penstock\n"
        "profile = penstock.load_profile('gpt2', kinds=['RTX-3090'], micro_batch_size=1, sequence=128)\n"
        "cluster = penstock.load_cluster('2 x RTX-3090 @ 12 GB/s')\n"
        "plan = penstock.plan(profile, cluster, 2, work=5)\n"
        "found = penstock.evaluate(plan, profile, cluster)\n"
        "assert found.timeline.iteration_s > 0\n"
        "print([name for name in ('torch', 'rich', 'networkx') if name in sys.modules])"
    )
    assert shown == "[]"


def test_errors_form_one_tree() -> None:
    for name in (name for name in penstock.__all__ if name.endswith("Error") or name in ("RuntimeTimeout", "PeerLost")):
        assert issubclass(getattr(penstock, name), penstock.PenstockError)
    assert issubclass(penstock.InputError, ValueError)
    error = penstock.InputError("what", where="where", hint="hint")
    assert str(error) == "where: what\n  hint"
    assert str(penstock.InputError("what")) == "what"
