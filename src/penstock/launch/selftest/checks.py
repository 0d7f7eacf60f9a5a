"""The checks of a self-test: commands of Penstock, in the order in which they run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.launch.hosts import default_threads
from penstock.launch.selftest.results import Verdict

NUM_MICROBATCHES = "8"
PROFILE, CLUSTER, CHECKPOINTS = "profile.json", "cluster.toml", "checkpoints"
LIMIT_S = 300.0
"""Longest time of one command."""

PLANS: dict[str, tuple[str, ...]] = {
    "1f1b": ("--planner", "balanced", "--schedule", "1f1b"),
    "interleaved": ("--planner", "balanced", "--schedule", "interleaved"),
    "zero bubble, V-shaped": ("--planner", "balanced", "--schedule", "zb_v"),
    "two sets of cuts": ("--planner", "bipartition"),
    "replicated": ("--planner", "data_parallel"),
    "auto": ("--planner", "auto", "--work", "50"),
}
"""By name: the options of each plan that is compared with a single process."""


@dataclass(frozen=True)
class Check:
    """One command, and what it must give.

    Attributes:
        name: Name of the check.
        arguments: The arguments of `penstock`.
        needs: Files in the working directory that earlier checks have written. Without them the check is skipped.
        expected: By key of the JSON output: the value that it must have.
        skipped: Why the check does not apply on this machine; empty if it does.
        limit_s: Longest time of the command.
    """

    name: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    expected: tuple[tuple[str, object], ...] = ()
    skipped: str = ""
    limit_s: float = LIMIT_S

    def verdict(self, code: int, data: object) -> Verdict:
        """Judge an exit code and the JSON output."""
        values = data if isinstance(data, dict) else {}
        is_met = code == 0 and all(values.get(key) == value for key, value in self.expected)
        return Verdict.OK if is_met else Verdict.FAILED


def list_checks(num_ranks: int, device: str) -> tuple[Check, ...]:
    """List the checks for some ranks on devices of a type, such as "cpu" or "cuda"."""
    here = Path(__file__).parent / "models"
    model, waiting = (str(here / f"{name}.py") for name in ("transformer", "waiting_transformer"))
    on_device = ("--device", device)
    sources = ("--profile", PROFILE, "--cluster", CLUSTER)
    # As many threads as a rank on a CPU has, so that kinds agree.
    threads = ("--threads", str(default_threads(num_ranks)))
    profile = ("profile", f"{model}:make_model", "-b", "2", "--seconds", "5", *threads, *on_device, "-o", PROFILE)
    checks = [
        Check("profile a model", profile),
        Check("probe the links", ("cluster", "probe", "--local", str(num_ranks), *on_device, "-o", CLUSTER)),
    ]
    for name, options in PLANS.items():
        file = f"{name.replace(' ', '-').replace(',', '')}.json"
        planned = ("plan", *sources, "-m", NUM_MICROBATCHES, *options, "-o", file)
        compared = ("check", file, *sources, "--numerics", f"{model}:make_model", *on_device)
        checks += [
            Check(f"plan {name}", planned, (PROFILE, CLUSTER)),
            Check(f"train {name} as one process does", compared, (file,), (("holds", True),)),
        ]
    file = "zero-bubble-V-shaped.json"
    is_cpu = "" if device != "cpu" else "a CPU has no queue to wait for"
    waits = ("check", file, *sources, "--numerics", f"{waiting}:make_model", *on_device)
    checks.append(Check("train with device-wide waits", waits, (file,), (("holds", True),), is_cpu))
    return (*checks, *_checkpoints(model, on_device))


def _checkpoints(model: str, on_device: Sequence[str]) -> tuple[Check, ...]:
    """Save in the middle of training, and resume."""
    train = ("train", f"{model}:make_model", "--plan", "1f1b.json", "--profile", PROFILE, "--cluster", CLUSTER)
    options = (*train, *on_device, "--checkpoint", CHECKPOINTS)
    return (
        Check("save checkpoints", (*options, "--steps", "4", "--save-every", "2", "--async-save"), ("1f1b.json",)),
        Check("resume from a checkpoint", (*options, "--steps", "6"), ("1f1b.json", CHECKPOINTS)),
    )
