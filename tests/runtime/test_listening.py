"""Layers that are listened to: what they leave in the graph, and what is asked of their users."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from penstock.errors import RunError
from penstock.runtime.listening import Listening
from penstock.runtime.weights import WeightJobs

torch.set_num_threads(1)


def listening(model: nn.Module) -> Listening:
    return Listening(model.named_modules(), model.parameters())


def names_in_graph(out: Tensor) -> set[str]:
    found, waiting = set(), [out.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None:
            found.add(node.name())
            waiting += [after for after, _ in node.next_functions]
    return found


def test_the_graph_holds_torchs_own_functions_and_no_parameters() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    jobs = WeightJobs()
    x = torch.randn(3, 4, requires_grad=True)
    with listening(model).to(jobs.defer):
        out = model(x)
    assert not [name for name in names_in_graph(out) if "_Linear" in name]
    assert "torch::autograd::AccumulateGrad" in names_in_graph(out)
    out.sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert len(jobs) == 4
    jobs.run()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_layers_are_as_before_when_nobody_listens() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    mine = model[1].forward
    model[1].forward = lambda x: mine(x) + 1
    given = model[1].__dict__["forward"]
    with listening(model).to(WeightJobs().defer):
        assert "forward" in model[0].__dict__
        assert model[1].__dict__["forward"] is given
    assert "forward" not in model[0].__dict__
    assert model[1].__dict__["forward"] is given
    with pytest.raises(ZeroDivisionError), listening(model).to(WeightJobs().defer):
        raise ZeroDivisionError
    assert "forward" not in model[0].__dict__


def test_input_by_its_name_and_gradients_that_never_come() -> None:
    layer, jobs = nn.Linear(4, 4), WeightJobs()
    x = torch.randn(3, 4, requires_grad=True)
    with listening(layer).to(jobs.defer):
        layer(input=x)
        out = layer(input=x)
    out.sum().backward()
    assert len(jobs) == 2


def test_an_input_changed_in_place_is_refused_as_torch_does() -> None:
    layer, jobs = nn.Linear(4, 4), WeightJobs()
    x = torch.randn(3, 4, requires_grad=True) * 1
    with listening(nn.Sequential(layer)).to(jobs.defer):
        out = layer(x)
    x.add_(1)
    with pytest.raises(RunError, match="the input of 0 was changed in place"):
        out.sum().backward()


class Again(nn.Module):
    """Recomputes its layers in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]


def test_blocks_that_recompute_themselves() -> None:
    model, jobs = Again(), WeightJobs()
    x = torch.randn(3, 4, requires_grad=True)
    model(x).sum().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    heard = listening(model)
    with heard.to(jobs.defer):
        out = model(x)
    with heard.to(jobs.defer):
        out.sum().backward()
    assert len(jobs) == 4
    jobs.run()
    for parameter, wanted in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert wanted is not None
        assert torch.equal(parameter.grad, wanted)
