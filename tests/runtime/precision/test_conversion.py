"""Models in another precision."""

import pytest
import torch
from torch import nn

from penstock.profile import PRECISIONS, find_precision
from penstock.runtime.precision.conversion import Conversion, convert_inputs
from tests.support.runtime.precision_runs import shared_model


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("own", [torch.float32, torch.bfloat16, torch.float64])
def test_tensors_are_converted_in_place_as_by_torch(precision: str, own: torch.dtype) -> None:
    recipe = find_precision(precision)
    model, plain = shared_model().to(own), shared_model().to(own)
    plain.load_state_dict(model.state_dict())
    tensors = [*model.parameters(), *model.buffers()]
    before = [item.detach().clone() for item in tensors]
    conversion = Conversion(model, recipe)
    plain.to(getattr(torch, recipe.parameter_type))
    assert all(map(torch.equal, model.state_dict().values(), plain.state_dict().values()))
    assert [item.dtype for item in model.state_dict().values()] == [item.dtype for item in plain.state_dict().values()]
    assert all(one is other for one, other in zip(tensors, [*model.parameters(), *model.buffers()], strict=True))
    assert model[0].weight is model[2].weight
    assert all(map(torch.equal, map(conversion.original, tensors), before))
    conversion.undo()
    assert all(map(torch.equal, [*model.parameters(), *model.buffers()], before))
    assert all(item.dtype == value.dtype for item, value in zip(tensors, before, strict=True))


def test_gradients_are_accumulated_in_float32() -> None:
    layer = nn.Linear(3, 3)
    Conversion(layer, find_precision("bf16"))
    expected = torch.zeros(3, 3)
    for _ in range(3):
        x = torch.randn(5, 3, dtype=torch.bfloat16)
        layer(x).square().sum().backward()
        copy = nn.Linear(3, 3, dtype=torch.bfloat16)
        copy.load_state_dict(layer.state_dict())
        copy(x).square().sum().backward()
        assert copy.weight.grad is not None
        expected += copy.weight.grad.float()
    assert layer.weight.grad is not None
    assert torch.equal(layer.weight.grad, expected)


def test_a_model_on_the_meta_device_stays_there() -> None:
    with torch.device("meta"):
        model = nn.Linear(3, 3)
    conversion = Conversion(model, find_precision("fp16"))
    assert model.weight.dtype == torch.float16
    conversion.undo()
    assert (model.weight.dtype, model.weight.is_meta) == (torch.float32, True)


def test_only_numbers_of_inputs_are_converted() -> None:
    ids, mask, x = torch.arange(3), torch.ones(3, dtype=torch.bool), torch.randn(3)
    batch = ({"ids": ids, "mask": mask}, [x, 3.5])
    (first, (second, number)) = convert_inputs(batch, find_precision("bf16"))
    assert first["ids"] is ids
    assert first["mask"] is mask
    assert second.dtype == torch.bfloat16
    assert number == 3.5
    assert convert_inputs(batch, find_precision("bf16-mixed")) is batch
    assert convert_inputs(batch, None) is batch
