"""Random numbers depend on step, row, layer and call, not on the process or the split of rows."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.runtime.random_functions import RandomFunctionMode
from penstock.runtime.rng import RowRng
from penstock.runtime.tensors.rows import Rows

CPU = torch.device("cpu")


def run(model: nn.Module, x: Tensor, rows: Rows, *, step: int = 0, layer: int = 0, is_split: bool = True) -> Tensor:
    rng = RowRng(1, step, rows, is_split=is_split, device=CPU)
    with rng.preserve_state(), RandomFunctionMode(rng):
        rng.enter_layer(layer)
        return model(x)  # type: ignore[no-any-return]


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        heads = x.view(x.shape[0], 4, 2, -1).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.5, is_causal=True)


class Folded(nn.Module):
    """Dropout where rows and positions are one dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x.flatten(0, 1), 0.5).view(x.shape)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]  # type: ignore[no-any-return]


MODELS = [
    nn.Dropout(0.5),
    nn.Dropout(0.5, inplace=True),
    nn.Sequential(nn.Dropout(0.3), nn.Dropout(0.3)),
    nn.Dropout1d(0.5),
    nn.AlphaDropout(0.5),
    nn.AlphaDropout(0.5, inplace=True),
    nn.FeatureAlphaDropout(0.5),
    Attention(),
    Folded(),
    Heads(),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_every_split_of_rows_draws_the_same(model: nn.Module) -> None:
    model = model.double()
    x = torch.randn(5, 4, 6, dtype=torch.float64) + 3
    whole = run(model, x.clone(), Rows(10, 15))
    parts = [run(model, x[:2].clone(), Rows(10, 12)), run(model, x[2:].clone(), Rows(12, 15))]
    assert torch.allclose(whole, torch.cat(parts), rtol=1e-12, atol=1e-12)
    assert torch.equal(whole, run(model, x.clone(), Rows(10, 15)))
    assert not torch.equal(whole, run(model, x.clone(), Rows(11, 16)))
    assert not torch.equal(whole, run(model, x.clone(), Rows(10, 15), step=1))
    assert not torch.equal(whole, run(model, x.clone(), Rows(10, 15), layer=1))


def test_rows_and_calls_have_masks_of_their_own() -> None:
    ones = torch.ones(2, 64)
    out = run(nn.Dropout(0.5), ones, Rows(0, 2))
    assert not torch.equal(out[0], out[1])

    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([F.dropout(x, 0.5), F.dropout(x, 0.5)])

    first, second = run(Twice(), ones, Rows(0, 2))
    assert not torch.equal(first, second)


def test_dropout_keeps_the_mean_and_the_right_part() -> None:
    out = run(nn.Dropout(0.25), torch.ones(4, 10_000), Rows(0, 4))
    assert set(out.flatten().tolist()) == {0.0, float(torch.tensor(1 / 0.75))}
    assert abs(float(out.mean()) - 1) < 0.02
    assert not run(nn.Dropout(1.0), torch.ones(2, 3), Rows(0, 2)).any()


def test_whole_channels_are_dropped() -> None:
    out = run(nn.Dropout2d(0.5), torch.ones(3, 40, 2, 2), Rows(0, 3)).flatten(2)
    assert (out.amin(2) == out.amax(2)).all()
    assert 0 < int((out == 0).sum()) < out.numel()


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.3), nn.Dropout1d(0.3)])
def test_other_kinds_of_dropout_have_the_values_of_torch(layer: nn.Module) -> None:
    x = torch.full((4, 500, 3), 0.7)
    out, expected = run(layer, x, Rows(0, 4)), layer(x)
    values, torchs = (torch.tensor(sorted(set(item.flatten().tolist()))) for item in (out, expected))
    assert torch.allclose(values, torchs, rtol=1e-6)
    assert abs(float(out.mean() - expected.mean())) < 0.15
    if not isinstance(layer, nn.AlphaDropout):
        assert (out.amin(2) == out.amax(2)).all()
    assert torch.equal(run(layer.eval(), x, Rows(0, 4)), x)
    layer.train()


KINDS_OF_DROPOUT = [
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.parametrize("kind", KINDS_OF_DROPOUT)
def test_every_dropout_at_the_ends_of_its_range(kind: type[nn.Module], p: float, in_place: bool) -> None:
    """With p = 0 or 1 nothing is random, so the output is that of torch, to the bit."""
    shapes: dict[type[nn.Module], tuple[int, ...]] = {nn.Dropout1d: (3, 4, 5), nn.Dropout3d: (3, 4, 2, 2, 2)}
    x = torch.randn(shapes.get(kind, (3, 4, 2, 2))) + 2
    layer = kind(p, inplace=in_place)
    torch.manual_seed(0)
    expected = layer(x.clone())
    out = run(layer, x.clone(), Rows(0, 3))
    assert torch.isfinite(out).all()
    assert torch.equal(out, expected)
    assert torch.equal(out, x) if p == 0.0 else not out.any()


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_attention_dropout_at_the_ends_of_its_range(p: float) -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x, dropout_p=p)

    x = torch.randn(2, 4, 6)
    out = run(Plain(), x, Rows(0, 2))
    assert torch.equal(out, F.scaled_dot_product_attention(x, x, x)) if p == 0.0 else not out.any()


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_a_probability_out_of_range_is_refused(p: float) -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, p)

    with pytest.raises(InputError, match="must be between 0 and 1"):
        run(Plain(), torch.ones(2, 3), Rows(0, 2))


def test_positions_of_one_row_without_rows() -> None:
    out = run(nn.Dropout1d(0.5), torch.ones(40, 3), Rows(0, 1))
    assert (out.amin(1) == out.amax(1)).all()
    assert 0 < int((out == 0).sum()) < out.numel()


def test_evaluation_draws_nothing() -> None:
    x = torch.randn(2, 3)
    assert torch.equal(run(nn.Dropout(0.5).eval(), x, Rows(0, 2)), x)


def test_attention_without_dropped_parts_is_torchs() -> None:
    x = torch.randn(2, 4, 6)

    class Plain(nn.Module):
        def __init__(self, p: float) -> None:
            super().__init__()
            self.p = p

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones(4, 4, dtype=torch.bool).tril()
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask, dropout_p=self.p)

    # The probability is so small that nothing is dropped: this compares the formula with the kernel.
    assert torch.allclose(run(Plain(1e-7), x, Rows(0, 2)), Plain(0.0)(x), atol=1e-6)
    assert torch.equal(run(Plain(0.0), x, Rows(0, 2)), Plain(0.0)(x))


def test_other_random_numbers_belong_to_the_layer_and_leave_no_trace() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.randn_like(x)

    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    first = run(Noise(), torch.zeros(2, 3), Rows(0, 2))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, run(Noise(), torch.zeros(2, 3), Rows(0, 2)))
    assert not torch.equal(first, run(Noise(), torch.zeros(2, 3), Rows(0, 2), layer=1))


def test_dropout_without_rows_first_is_refused_where_rows_are_split() -> None:
    x = torch.randn(7, 3)
    with pytest.raises(InputError, match="so that every row gets its own mask"):
        run(nn.Dropout(0.5), x, Rows(0, 3))
    assert run(nn.Dropout(0.5), x, Rows(0, 3), is_split=False).shape == (7, 3)
