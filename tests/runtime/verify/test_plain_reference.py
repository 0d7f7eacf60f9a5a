"""The plain reference gives the bits of a hand-written loop, and those of a single stage with all layers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from penstock.errors import InputError
from penstock.model.blocks import Block, find_blocks
from penstock.model.trees import same_bits
from penstock.runtime.stage.loss import scale_loss, sum_losses
from penstock.runtime.stage.stage import TorchStage
from penstock.runtime.tensors.batch import count_rows, slice_rows
from penstock.runtime.tensors.packing import pack
from penstock.runtime.tensors.rows import microbatch_rows
from penstock.runtime.verify.plain_reference import reference_step
from tests.support.runtime import chains, checkpointed, meta_models, own_forward
from tests.support.runtime.models import KINDS
from tests.support.runtime.odd_blocks import Both, Branch, Clip
from tests.support.runtime.user_models import mean_square

torch.set_num_threads(1)

NUM_STEPS = 3
NUM_MICROBATCHES = 4
SEED = 7


class Between(nn.Module):
    """Draws before, between and after its blocks, in a skip connection, and from torch's own generator.

    The concatenation makes the cheapest cut lie before the last two calls of forward between two blocks: these calls
    belong to the next layer.
    """

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.Dropout(0.3)) for _ in range(3)])
        self.wide = nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        x = F.dropout(x, 0.2, self.training)
        skip = x
        for layer in self.layers:
            x = F.dropout(torch.tanh(layer(x)), 0.1, self.training) + 0.1 * torch.rand_like(x)
        wide = torch.cat([x, skip, x * skip, x - skip], 1)
        x = self.wide(F.dropout(wide, 0.4, self.training) + 0.1 * torch.randn_like(wide))
        out: Tensor = self.head(F.dropout(x * scale, 0.1, self.training))
        return F.dropout(out, 0.2, self.training)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.unsqueeze(1).expand(-1, 3, -1) * torch.arange(1.0, 4.0).view(3, 1)
        out: Tensor = self.attention(rows, rows, rows, need_weights=False)[0].mean(1)
        return out


def draws() -> nn.Sequential:
    """Every kind of random layer, and a module that occurs twice."""
    twice = nn.Sequential(nn.Linear(6, 6), nn.AlphaDropout(0.2))
    return nn.Sequential(
        nn.Linear(6, 6), twice, Attention(), nn.RReLU(0.1, 0.4), twice, nn.Dropout(0.5, inplace=True), nn.Linear(6, 2)
    )


def small(step: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(11, 6, generator=generator), torch.randn(11, generator=generator)


def pair(step: int) -> tuple[Any, Any]:
    x, y = small(step)
    return (x, 1 + x[:, :1]), y


def narrow(step: int) -> tuple[Any, Any]:
    x, y = small(step)
    return x[:, :3], y


Case = tuple[Callable[[], nn.Module], Callable[[Any, Any], Tensor], Callable[[int], tuple[Any, Any]], bool]
"""A model, its loss, its batches, and whether its blocks are found by running it."""


def _batch_of(kind: Any, step: int) -> tuple[Any, Any]:
    """The batch of a model of the grid."""
    inputs, targets = kind.batch(step, 13)
    return inputs, targets


CASES: dict[str, Case] = {
    **{name: (kind.model, kind.loss, partial(_batch_of, kind), False) for name, kind in KINDS.items()},
    "fewer rows than micro-batches": (
        KINDS["gpt"].model,
        KINDS["gpt"].loss,
        lambda step: KINDS["gpt"].batch(step, 3),
        False,
    ),
    "chain with ties": (
        lambda: chains.make_model(7, (0, 1, 4)),
        chains.loss,
        lambda step: chains.batch(step, 9),
        False,
    ),
    "own forward with ties": (own_forward.Model, own_forward.loss, own_forward.batch, True),
    "draws between blocks": (Between, mean_square, pair, True),
    "draws": (draws, mean_square, small, False),
    "in place and branches": (
        lambda: nn.Sequential(nn.Linear(3, 3), Both(), Clip(), Branch(), nn.Linear(3, 2)),
        mean_square,
        narrow,
        False,
    ),
    **{
        f"checkpointed, {kind}, {name}": (
            partial(checkpointed.make, kind, keep),
            checkpointed.loss,
            checkpointed.batch,
            True,
        )
        for kind in checkpointed.LAYERS
        for name, keep in checkpointed.CHECKPOINTS.items()
    },
    "checkpointed blocks": (
        partial(checkpointed.make, checkpointed.AROUND, checkpointed.CHECKPOINTS["not reentrant"]),
        checkpointed.loss,
        checkpointed.batch,
        True,
    ),
    "rotating": (meta_models.rotating, mean_square, narrow, False),
}


def by_stage(
    model: nn.Module,
    blocks: Sequence[Block],
    loss: Callable[[Any, Any], Tensor],
    inputs: Any,
    targets: Any,
    step: int,
    *,
    defer: bool = False,
) -> Tensor:
    """The same iteration by the code under test: one stage with all layers."""
    runner = TorchStage(blocks, 0, model, seed=SEED, is_split=False, device=torch.device("cpu"))
    num_rows = count_rows(inputs, targets)
    losses = []
    for rows in microbatch_rows(num_rows, NUM_MICROBATCHES):
        if rows.num:
            packed, _ = pack(slice_rows(inputs, rows, torch.device("cpu")))
            compute_loss = scale_loss(loss, slice_rows(targets, rows, torch.device("cpu")), rows.num / num_rows)
            out, graph = runner.run(packed, step, rows, compute_loss, keep=True, defer=defer)
            runner.backward(graph, graph.loss_grads)
            runner.backward_weight(graph)
            losses.append(out.tensors[0])
    return sum_losses(losses)


def make(case: Case) -> tuple[nn.Module, tuple[Block, ...]]:
    torch.manual_seed(0)
    model = case[0]()
    return model, find_blocks(model, None, case[2](0)[0] if case[3] else None)


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for (name, mine), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None), name
        assert mine.grad is None or torch.equal(mine.grad, theirs.grad), name  # type: ignore[arg-type]
    assert all(map(torch.equal, one.buffers(), other.buffers()))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # torch's, of nested ones
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("name", list(CASES))
def test_same_bits_as_one_stage(name: str, bf16: bool) -> None:
    case = CASES[name]
    (plain, plain_blocks), (staged, blocks) = make(case), make(case)
    before = torch.get_rng_state()
    for step in range(NUM_STEPS):
        x, y = case[2](step)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            one = reference_step(plain, plain_blocks, NUM_MICROBATCHES, case[1], x, y, step=step, seed=SEED)
            other = by_stage(staged, blocks, case[1], x, y, step)
        assert torch.equal(one, other)
        assert_same(plain, staged)
    assert torch.equal(before, torch.get_rng_state())


def test_calls_between_blocks_belong_to_both_neighbours() -> None:
    """Otherwise the case above would not show that the layer of such calls is right."""
    _, blocks = make(CASES["draws between blocks"])
    events = blocks[0].call.traces.find(pair(0)[0]).record.events  # type: ignore[attr-defined]
    calls = [number for number, event in enumerate(events) if event.is_block]
    random = [(number, event.unit) for number, event in enumerate(events) if event.is_random]
    behind = [unit - sum(call < number for call in calls) for number, unit in random if number > calls[0]]
    assert set(behind) == {-1, 0}


@pytest.mark.parametrize("kind", ["vgg", "resnet", "mlp"])
def test_same_bits_as_a_plain_loop(kind: str) -> None:
    x, y = KINDS[kind].batch(0, 13)
    one, other = KINDS[kind].model(), KINDS[kind].model()
    total, parts = 0.0, [4, 3, 3, 3]
    for rows, targets in zip(x.split(parts), y.split(parts), strict=True):  # type: ignore[no-untyped-call]
        value = KINDS[kind].loss(one(rows), targets) * (len(rows) / len(x))
        value.backward()  # type: ignore[no-untyped-call]
        total += float(value.detach())
    result = reference_step(other, find_blocks(other), 4, KINDS[kind].loss, x, y)
    assert float(result) == pytest.approx(total, rel=1e-6)
    assert_same(one, other)


def test_other_steps_seeds_and_layers_draw_other_numbers() -> None:
    model, blocks = make(CASES["draws between blocks"])
    x, y = pair(0)
    losses = [
        float(reference_step(model, blocks, 2, mean_square, x, y, step=step, seed=seed))
        for step, seed in ((0, 0), (0, 0), (1, 0), (0, 1))
    ]
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own
@pytest.mark.parametrize("in_place", [False, True])
def test_compiled_blocks(in_place: bool) -> None:
    def build() -> nn.Sequential:
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        if in_place:
            block.compile(backend="eager", fullgraph=True)
        compiled: Any = block if in_place else torch.compile(block, backend="eager")
        return nn.Sequential(nn.Linear(6, 6), compiled, nn.Dropout(0.3), nn.Linear(6, 2))

    plain, staged = build(), build()
    x, y = small(0)
    one = reference_step(plain, find_blocks(plain), NUM_MICROBATCHES, mean_square, x, y, seed=SEED)
    assert torch.equal(one, by_stage(staged, find_blocks(staged), mean_square, x, y, 0))
    assert_same(plain, staged)


def test_nothing_is_left_on_the_blocks() -> None:
    model, blocks = make(CASES["draws"])
    reference_step(model, blocks, 2, mean_square, *small(0))
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # torch's, of nested ones
@pytest.mark.parametrize("name", checkpointed.CHECKPOINTS)
@pytest.mark.parametrize("kind", [*checkpointed.LAYERS, checkpointed.AROUND])
def test_checkpoints_change_nothing(kind: str, name: str) -> None:
    if (kind, name) == (checkpointed.AROUND, "reentrant"):
        pytest.skip("refused, see tests/model/test_block_finder.py")
    losses, parameters = checkpointed.train_single_process(kind, checkpointed.call, 2)
    other_losses, other = checkpointed.train_single_process(kind, checkpointed.CHECKPOINTS[name], 2)
    assert same_bits((losses, parameters), (other_losses, other))


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", checkpointed.CHECKPOINTS)
def test_checkpoints_of_a_sequential(name: str, defer: bool) -> None:
    keep = checkpointed.CHECKPOINTS[name]
    plain, staged = (checkpointed.sequential(keep) for _ in range(2))
    x, y = checkpointed.batch(0)
    one = reference_step(plain, find_blocks(plain), NUM_MICROBATCHES, checkpointed.loss, x, y, seed=SEED)
    assert torch.equal(one, by_stage(staged, find_blocks(staged), checkpointed.loss, x, y, 0, defer=defer))
    assert_same(plain, staged)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_without_the_random_state_is_refused(use_reentrant: bool) -> None:
    class Recomputing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            call = partial(checkpoint, use_reentrant=use_reentrant, preserve_rng_state=False)
            return call(lambda y: F.dropout(torch.tanh(y), 0.3), x)  # type: ignore[no-any-return]

    model = nn.Sequential(nn.Linear(6, 6), Recomputing(), nn.Linear(6, 2))
    blocks = find_blocks(model)
    with pytest.raises(InputError, match="dropout in a backward does not follow") as raised:
        reference_step(model, blocks, 2, mean_square, *small(0))
    assert "preserve_rng_state=True" in raised.value.hint
    with pytest.raises(InputError, match="dropout in a backward does not follow"):
        by_stage(model, blocks, mean_square, *small(0), 0)


def test_a_model_that_fails_is_located() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(5, 2), nn.ReLU())
    with pytest.raises(RuntimeError) as raised:
        reference_step(model, find_blocks(model), 2, mean_square, *small(0), step=4)
    assert raised.value.__notes__ == ["In the forward of layer 1 (1), step 4, rows 0 to 5."]


def test_frozen_models_have_a_loss() -> None:
    model = nn.Sequential(nn.Linear(6, 2)).requires_grad_(False)
    x, y = small(0)
    value = reference_step(model, find_blocks(model), 3, mean_square, x, y)
    assert float(value) == pytest.approx(float(mean_square(model(x), y)), rel=1e-5)


def test_the_loss_is_the_mean_over_all_rows() -> None:
    kind = KINDS["mlp"]
    model = kind.model()
    x, y = kind.batch(0, 13)
    value = reference_step(model, find_blocks(model), 4, kind.loss, x, y)
    assert float(value) == pytest.approx(float(kind.loss(model(x), y).detach()), rel=1e-5)


def test_a_loss_must_be_one_number() -> None:
    model = KINDS["mlp"].model()
    x, y = KINDS["mlp"].batch(0, 4)
    with pytest.raises(InputError, match=r"the loss function returned a tensor of shape \(4, 5\)"):
        reference_step(model, find_blocks(model), 1, lambda out, _: out, x, y)


def test_inputs_and_targets_must_have_the_same_rows() -> None:
    model = KINDS["mlp"].model()
    x, y = KINDS["mlp"].batch(0, 4)
    with pytest.raises(InputError, match="differ in their rows"):
        reference_step(model, find_blocks(model), 1, KINDS["mlp"].loss, x, y[:3])
    with pytest.raises(InputError, match="no rows"):
        reference_step(model, find_blocks(model), 1, KINDS["mlp"].loss, x[:0], y[:0])
    with pytest.raises(InputError, match="no tensor"):
        reference_step(model, find_blocks(model), 1, KINDS["mlp"].loss, 3, None)
