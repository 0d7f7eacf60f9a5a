"""The loss that a model itself computes, in every form of output."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from penstock.errors import InputError
from penstock.model.loss import own_loss

LOSS = torch.tensor(0.5)
LOGITS = torch.zeros(2, 3)


class Output(NamedTuple):
    logits: Tensor
    loss: Tensor


OUTPUTS = (
    LOSS,
    {"loss": LOSS, "other": LOSS + 1},
    Output(LOGITS, LOSS),
    (LOSS, LOGITS),
    (LOGITS, LOSS),
    [LOGITS, LOSS, None],
)


@pytest.mark.parametrize("output", OUTPUTS)
def test_the_loss_in_an_output(output: Any) -> None:
    assert own_loss(output) is LOSS


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (LOGITS, r"no loss: it is a Tensor of shape \(2, 3\)"),
        ((LOGITS, torch.tensor(3)), "no loss: it is a tuple"),
        ((LOSS, LOGITS, LOSS), "2 single numbers"),
        ({"logits": LOGITS}, "no loss: it is a dict"),
    ],
)
def test_an_output_without_a_loss(output: Any, what: str) -> None:
    with pytest.raises(InputError, match=f"no loss function is given.*{what}"):
        own_loss(output)


def test_targets_need_a_loss_function() -> None:
    with pytest.raises(InputError, match="targets, but no loss function"):
        own_loss(LOSS, LOGITS)
