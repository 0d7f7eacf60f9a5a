"""The table: each model is profiled, planned, and trained for ten steps on two ranks beside a single process."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import penstock
from benchmarks.models import rank_functions
from benchmarks.models.other_models import MODELS
from benchmarks.models.rank_functions import NUM_STEPS, Training
from benchmarks.models.transformers_models import KINDS
from benchmarks.results import Result
from benchmarks.runtime.ranks import RankError, Ranks
from penstock import PenstockError, Profile

TOLERANCE = 1e-6
"""Of losses and gradients, relative, as in `penstock check --numerics`: tied parameters are summed in another order."""
NUM_MICROBATCHES = 2
PROFILE_S, QUICK_PROFILE_S = 1.0, 0.2
NUM_CLASSES, NUM_OTHERS, NUM_REFUSED = 40, 10, 2
OTHER = "other"
QUICK = ("LlamaForCausalLM", "BertForMaskedLM", "T5ForConditionalGeneration", "MixtralForCausalLM", "MambaForCausalLM",
         "ViTForImageClassification", "nn.Transformer", "U-Net with skips", "nanoGPT-like, (logits, loss)")  # fmt: skip


class Row(NamedTuple):
    """The result for one model."""

    name: str
    kind: str
    num_layers: int
    trainings: Sequence[Training]
    """Of each rank; none if a step before failed."""
    failure: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it trains, with the numbers of a single process."""
        return bool(self.trainings) and not self._wrong()

    @property
    def error(self) -> float:
        """The largest relative difference of losses and gradients."""
        return max(max(item.loss_error, item.gradient_error) for item in self.trainings)

    def _wrong(self) -> str:
        if any(item.missing for item in self.trainings):
            return f"gradients on one side only: {', '.join(self.trainings[0].missing or self.trainings[1].missing)}"
        if not all(math.isfinite(loss) for item in self.trainings for loss in item.losses):
            return "a loss is not finite"
        if not all(item.num_parameters for item in self.trainings):
            return "a rank trains no parameters"
        return "" if self.error <= TOLERANCE else f"differs by {self.error:.1e}"

    @property
    def measured(self) -> str:
        """The result in words."""
        if not self.trainings:
            return self.failure
        if self._wrong():
            return self._wrong()
        return f"{self.num_layers} layers, " + ("bit-equal" if not self.error else f"equal within {self.error:.0e}")


def models(*, quick: bool) -> Iterator[tuple[str, str]]:
    """The kind and the name of each model."""
    for kind, classes in KINDS.items():
        yield from ((kind, name) for name in classes.classes if not quick or name in QUICK)
    yield from ((OTHER, name) for name in MODELS if not quick or name in QUICK)


def run_all(*, quick: bool) -> Iterator[Row]:
    """Train all models, in the same two processes as long as none fails."""
    left = list(models(quick=quick))
    while left:
        with Ranks() as ranks:
            while left:
                kind, name = left.pop(0)
                row = run_model(ranks, kind, name, QUICK_PROFILE_S if quick else PROFILE_S)
                yield row
                if row.failure:
                    break  # ranks of a failed run may hold half a message


def run_model(ranks: Ranks, kind: str, name: str, profile_s: float) -> Row:
    """Profile, plan and train one model."""
    num_layers = 0
    try:
        profile: Profile = ranks.on_first(rank_functions.profile_model, name, profile_s)
        num_layers = profile.num_units
        cluster = penstock.load_cluster(f"2 x {profile.kinds[0]} @ 1 GB/s")
        plan = penstock.plan(profile, cluster, NUM_MICROBATCHES, planner="balanced", schedule="1f1b")
        return Row(name, kind, num_layers, ranks.on_all(rank_functions.train, name, plan, profile, cluster))
    except (RankError, PenstockError) as error:
        lines = str(error).splitlines()
        return Row(name, kind, num_layers, (), " ".join(line.strip() for line in lines[:2]))


def check_models(*, quick: bool) -> Iterator[Result]:
    """One line per model, and the targets."""
    rows = []
    for row in run_all(quick=quick):
        rows.append(row)
        yield Result(f"{row.kind}: {row.name}", f"{NUM_STEPS} steps", row.measured, row.is_right, is_over_all=True)
    right = [row for row in rows if row.is_right]
    others = sum(row.kind == OTHER for row in right)
    classes = len(right) - others
    yield Result("classes of transformers", f">= {NUM_CLASSES}", str(classes), classes >= NUM_CLASSES, True)
    yield Result("models of other kinds", f">= {NUM_OTHERS}", str(others), others >= NUM_OTHERS, True)
    refused = len(rows) - len(right)
    yield Result("models that do not train", f"<= {NUM_REFUSED}", str(refused), refused <= NUM_REFUSED)
