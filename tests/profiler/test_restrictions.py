"""Restrictions of layers in measured profiles."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.profiler.measurement import measure


class Turned(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x.transpose(0, 1))  # type: ignore[no-any-return]


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


class Scaled(nn.Module):
    """Its backward depends on a number that it reads from its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x * float(x.detach()[0, 0])


class Statistics(nn.Module):
    """Batch norm that is not a module of torch, with statistics that may be shared."""

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("var", torch.ones(4))

    mean: Tensor
    var: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.var, training=True)


class OwnGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            own = x.detach().requires_grad_()
            (grad,) = torch.autograd.grad(self.layer(own).square().sum(), own)
        return self.layer(x) + grad  # type: ignore[no-any-return]


def restrictions(*layers: nn.Module) -> dict[str, tuple[int, ...]]:
    model = nn.Sequential(nn.Linear(4, 4), *layers, nn.Linear(4, 1))
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    found = measure(model, torch.randn(6, 4), lambda out: out.square().mean(), seconds=0.05)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    return {item.rule: item.units for item in found.restrictions}


def test_what_layers_require() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4)
    assert restrictions(nn.ReLU(), nn.Dropout(0.1)) == {}
    assert restrictions(norm, nn.ReLU()) == {"sync_replicas": (1,)}
    assert restrictions(norm.eval()) == {}
    assert restrictions(norm.train(), nn.ReLU(), norm) == {"sync_replicas": (1, 3), "one_stage": (1, 3)}
    assert restrictions(Turned(0.0), Turned(0.0)) == {"same_replicas": (1,)}
    assert restrictions(Turned(0.5), Turned(0.0)) == {"one_replica": (1,), "same_replicas": (1,)}
    assert restrictions(Counting()) == {"no_recompute": (1,)}
    assert restrictions(Counting(), Scaled()) == {"no_recompute": (1,), "no_transfer": (2,)}
    assert restrictions(Scaled()) == {}
    mean = torch.zeros(4)
    assert restrictions(Statistics(mean), Statistics(mean)) == {"one_replica": (1, 2), "one_stage": (1, 2)}
    assert "fused_backward" in restrictions(OwnGradient())
