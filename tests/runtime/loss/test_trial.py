"""A loss whose parts do not add up is refused in the first step, and no other loss is."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from tests.support.runtime.rank_pool import RankError, RankPool
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)

PAD = 0
LENGTH, WIDTH, WORDS = 4, 6, 7


class BatchStatistics(nn.Module):
    """Batch norm without running statistics: rows are mixed in evaluation mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return out


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return out


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Scored(nn.Module):
    """A model's own loss, of its inputs and its output."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Any], *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.loss = loss

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = self.layers(batch["x"])
        return {"loss": self.loss(logits, batch["labels"]), "logits": logits}


def flat(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def padded(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)


def summed(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def contrastive(logits: Tensor, _targets: Tensor) -> Tensor:
    """Every row with every other one."""
    rows = logits.flatten(1)
    return F.cross_entropy(rows @ rows.T, torch.arange(len(rows)))


def wrong_sum(logits: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    return flat(logits, targets), targets.numel()


def right_sum(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum")
    return losses, (targets != PAD).sum()


def random_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return flat(logits + torch.rand_like(logits), targets)


def flipped(logits: Tensor, targets: Tensor) -> Tensor:
    """A mean over rows that fails on a single one."""
    assert len(logits) > 1
    return flat(logits, targets)


LOSSES = {
    function.__name__: function
    for function in (flat, padded, summed, contrastive, wrong_sum, right_sum, random_loss, flipped)
}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "plain": nn.Identity,
    "dropout": lambda: nn.Dropout(0.5),
    "batch norm": Normed,
    "batch statistics": BatchStatistics,
    "noise": Noise,
}


def run(plan: Plan, layer: str, loss: str, num_rows: int, is_own: bool, num_clean: int = 0, bf16: bool = False) -> None:
    """Train. The first steps have no padding."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH), LAYERS[layer](), nn.Linear(WIDTH, WORDS)]
    model: Any = nn.Sequential(Scored(LOSSES[loss], *layers)) if is_own else nn.Sequential(*layers)
    pipe = Pipeline(model, plan, None if is_own else LOSSES[loss], timeout_s=60)
    for step in range(num_clean + 1):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(num_rows, LENGTH, WIDTH, generator=generator)
        labels = torch.randint(1, WORDS, (num_rows, LENGTH), generator=generator)
        if step == num_clean:
            labels[::3, 1:] = PAD
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            pipe.step({"x": x, "labels": labels}) if is_own else pipe.step(x, labels)
    pipe.close()


ONE = plan_of([0, 1], [["a"]], num_microbatches=2)
TWO = plan_of([0, 2, 3], [["a"], ["b"]], num_microbatches=2)
SHARED = plan_of([0, 1, 3], [["a"], ["a", "b"]], num_microbatches=2)


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("loss", ["padded", "summed", "contrastive"])
def test_other_losses_are_refused(rank_pool: RankPool, loss: str, is_own: bool) -> None:
    hint = "Pass a loss function of the model's output" if is_own else r"Return \(sum, count\)"
    with pytest.raises(RankError, match=rf"(?s)not the mean over its rows: the gradients of 4 rows.*{hint}"):
        rank_pool.run(1 if is_own else 2, run, ONE if is_own else TWO, "plain", loss, 8, is_own)


@pytest.mark.parametrize("plan", [TWO, SHARED])
def test_single_rows_are_compared_across_micro_batches(rank_pool: RankPool, plan: Plan) -> None:
    with pytest.raises(RankError, match="the gradients of 2 rows"):
        rank_pool.run(2, run, plan, "plain", "padded", 2 if plan is TWO else 4, False)


def test_single_rows_are_compared_across_iterations(rank_pool: RankPool) -> None:
    one_row_each = plan_of([0, 1, 3], [["a"], ["a", "b"]], num_microbatches=1)
    with pytest.raises(RankError, match="the gradients of 2 rows"):
        rank_pool.run(2, run, one_row_each, "plain", "padded", 2, False, 1)
    for loss in ("flat", "right_sum"):
        for layer in ("plain", "dropout"):
            rank_pool.run(2, run, one_row_each, layer, loss, 2, False, 3)


def test_sums_are_checked_too(rank_pool: RankPool) -> None:
    with pytest.raises(RankError, match="the sum and the count of a micro-batch are not the sums"):
        rank_pool.run(2, run, TWO, "plain", "wrong_sum", 8, False)


def test_padding_that_appears_later_is_found(rank_pool: RankPool) -> None:
    with pytest.raises(RankError, match="not the mean over its rows"):
        rank_pool.run(2, run, TWO, "plain", "padded", 8, False, 3)


@pytest.mark.parametrize("layer", list(LAYERS))
def test_right_losses_are_accepted(rank_pool: RankPool, layer: str) -> None:
    for plan in (TWO, SHARED):
        for loss in ("flat", "right_sum", "random_loss", "flipped"):
            rank_pool.run(2, run, plan, layer, loss, 8, False, 0, plan is SHARED)


@pytest.mark.parametrize("layer", ["plain", "dropout", "batch norm", "noise"])
@pytest.mark.parametrize("loss", ["flat", "random_loss", "flipped"])
def test_right_own_losses_are_accepted(rank_pool: RankPool, loss: str, layer: str) -> None:
    rank_pool.run(1, run, ONE, layer, loss, 8, True)
