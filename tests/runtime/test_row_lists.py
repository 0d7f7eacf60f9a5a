"""Batches with a list of dicts, one for every row, as models of detection take them."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.model import find_blocks, plain_inputs
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.verify.plain_reference import reference_step
from tests.support.runtime.rank_pool import RankError, RankPool
from tests.support.runtime.user_models import plan_of

WIDTH = 8


class Detector(nn.Module):
    """Matches each box to the nearest query of its image."""

    def __init__(self, *, over_boxes: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.queries = nn.Parameter(torch.randn(5, WIDTH))
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(WIDTH, 4)
        self.over_boxes = over_boxes

    def forward(self, pixels: Tensor, labels: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        x = pixels[:, None] + self.queries
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        boxes = self.head(self.drop(x))
        losses = []
        for found, label in zip(boxes, labels, strict=True):
            nearest = torch.cdist(found, label["boxes"]).argmin(0)
            losses.append(F.l1_loss(found[nearest], label["boxes"], reduction="none").mean(1))
        loss = torch.cat(losses).mean() if self.over_boxes else torch.stack([item.mean() for item in losses]).mean()
        return {"loss": loss, "boxes": boxes}


def make_model(**options: bool) -> Detector:
    torch.manual_seed(0)
    return Detector(**options)


def batch(step: int, rows: int = 5) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(step)
    counts = torch.randint(1, 4, (rows,), generator=generator).tolist()
    boxes = [{"boxes": torch.rand(count, 4, generator=generator)} for count in counts]
    return {"pixels": torch.randn(rows, WIDTH, generator=generator), "labels": boxes}


def gradients(plan: Plan, over_boxes: bool) -> list[tuple[float, dict[str, Any]]]:
    model = make_model(over_boxes=over_boxes)
    pipe = Pipeline(model, plan, inputs=batch(0), timeout_s=60)
    results = []
    for step in range(2):
        for item in pipe.named_parameters().values():
            item.grad = None
        loss = float(pipe.step(batch(step, 5 + step)))
        results.append((loss, {name: item.grad for name, item in pipe.named_parameters().items()}))
    pipe.close()
    return results


@pytest.mark.parametrize("devices", [[["a"], ["b"]], [["a"], ["a", "b"]], [["a", "b"]]])
def test_rows_of_a_list_of_dicts(rank_pool: RankPool, devices: list[list[str]]) -> None:
    model = make_model()
    blocks = find_blocks(model, None, plain_inputs(batch(0)))
    cuts = [0, 2, len(blocks)] if len(devices) > 1 else [0, len(blocks)]
    plan = plan_of(cuts, devices, num_microbatches=2, schedule="1f1b")
    results = rank_pool.run(2, gradients, plan, False)
    for step in range(2):
        model.zero_grad()
        expected = float(reference_step(model, blocks, 2, None, plain_inputs(batch(step, 5 + step)), step=step))
        for rank in results:
            loss, grads = rank[step]
            assert loss == pytest.approx(expected, rel=1e-6)
            for name, grad in grads.items():
                torch.testing.assert_close(grad, model.get_parameter(name).grad, rtol=1e-5, atol=1e-7)


def test_a_mean_over_boxes_is_refused(rank_pool: RankPool) -> None:
    plan = plan_of([0, 4], [["a", "b"]], num_microbatches=1, schedule="1f1b")
    with pytest.raises(RankError, match="the loss of a micro-batch is not"):
        rank_pool.run(2, gradients, plan, True)
