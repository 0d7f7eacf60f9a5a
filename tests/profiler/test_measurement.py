"""Measuring models: bytes against manual counts, plausible times, and an unchanged model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import penstock
from penstock.errors import InputError, PenstockError
from penstock.model import find_blocks
from penstock.profile.spread import PARTS
from penstock.profile.types import Profile
from penstock.profiler.measurement import measure
from penstock.runtime.stage import TorchStage
from penstock.runtime.tensors import Rows, pack
from tests.support.model_cases import CASES, GPT, VGG
from tests.support.undisturbed import undisturbed


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def _mean_square(output: Tensor) -> Tensor:
    return output.square().mean()


def _bytes(found: Profile, rows: int) -> list[tuple[int, int]]:
    sizes = [next(size for size in unit.sizes if size.micro_batch_size == rows) for unit in found.units]
    return [(size.cut_bytes, size.saved_bytes) for size in sizes]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own
@undisturbed
def test_compiled_blocks_make_both_gradients_at_once() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64))
    model[1].compile(backend="aot_eager")
    found = measure(model, torch.randn(32, 64), _mean_square, seconds=0)
    _, compiled, plain = (unit.times[0] for unit in found.units)
    assert compiled.weight_grad_s == 0.0
    assert compiled.input_grad_s > 0
    assert plain.weight_grad_s > 0


@pytest.mark.parametrize(
    ("precision", "element", "ratios"),
    [(None, 4, (1, 2)), ("fp32", 4, (1, 2)), ("bf16", 2, (2, 6)), ("fp16", 2, (2, 6)), ("bf16-mixed", 4, (1, 2.5))],
)
def test_bytes_in_a_precision(precision: str | None, element: int, ratios: tuple[float, float]) -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 5))
    before = {name: item.clone() for name, item in model.state_dict().items()}
    found = penstock.profile(model, torch.randn(6, 10), _mean_square, seconds=0, overheads=False, precision=precision)
    assert [unit.parameter_bytes for unit in found.units] == [220 * element, 0, 105 * element]
    assert (found.gradient_ratio, found.optimizer_ratio) == ratios
    spread = found.known_spread
    assert spread.is_measured
    assert [len(getattr(spread, name)) for name in PARTS] == [3] * 4
    assert spread.weight_grad[1] == spread.step[1] == 0
    # Autocast makes a copy of the input, and none of the weights that a micro-batch would hold by itself.
    half = 2 if precision in ("bf16", "fp16", "bf16-mixed") else 4
    saved = 6 * 10 * (element + half if precision == "bf16-mixed" else half)
    hidden = 6 * 20 * half
    assert _bytes(found, 6)[:2] == [(hidden, saved), (hidden, hidden)]
    after = model.state_dict()
    assert all(torch.equal(item, after[name]) and item.dtype == after[name].dtype for name, item in before.items())
    assert any(text.startswith(f"Precision {precision}.") for text in found.assumptions) == (precision is not None)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match="'half' is not a precision"):
        penstock.profile(nn.Linear(3, 3), torch.randn(2, 3), _mean_square, precision="half")


def test_bytes_of_linear_layers() -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5, bias=False))
    found = measure(model, torch.randn(6, 10), _mean_square, seconds=0)
    assert found.micro_batch_size == 6
    assert found.input_bytes == 6 * 10 * 4
    assert [unit.parameter_bytes for unit in found.units] == [(10 * 20 + 20) * 4, 0, 20 * 5 * 4]
    for rows in (6, 3):
        hidden, out = rows * 20 * 4, rows * 5 * 4
        assert _bytes(found, rows) == [
            (hidden, rows * 10 * 4),  # keeps its input
            (hidden, hidden),  # its input; what ReLU keeps is its result, and that is the next one's input
            (0, hidden + out),  # its input, and the output for the square
        ]
    assert found.ties == ()
    assert (found.gradient_ratio, found.optimizer_ratio) == (1.0, 2.0)


def test_tensors_changed_in_place_are_saved_once() -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(inplace=True), nn.Linear(20, 5))
    found = measure(model, torch.randn(4, 10), _mean_square, seconds=0)
    assert _bytes(found, 4)[1] == (4 * 20 * 4, 0)


def test_a_skip_is_in_every_cut_that_it_crosses() -> None:
    case = CASES["resnet"]
    found = measure(
        case.model(), torch.randn(4, 4, 6, 6), _mean_square, blocks=case.names, micro_batch_sizes=[2], seconds=0
    )
    image = 2 * 4 * 6 * 6 * 4
    assert [cut for cut, _ in _bytes(found, 2)] == [image, 2 * image, 2 * image, image, 0]


def test_tied_parameters_are_found() -> None:
    ids = torch.randint(0, 11, (4, 7))
    found = penstock.profile(GPT(), ids, lambda out, targets: F.cross_entropy(out, targets.flatten()), targets=ids,
                             seconds=0)  # fmt: skip
    assert found.ties == (penstock.Tie(name="embed.weight", parameter_bytes=11 * 8 * 4, units=(0, 6)),)
    assert found.kinds == ("cpu-1-thread",)
    assert [time.micro_batch_size for time in found.units[0].times] == [4, 2]
    assert found.units[0].times[0].input_grad_s == 0


def test_times_follow_the_work() -> None:
    """A matrix product of 4 x the size takes longer in each pass, and so do twice the rows."""
    model = nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 1024), nn.Linear(1024, 128), nn.Dropout(0.5))
    found = measure(model, torch.randn(512, 128), _mean_square, micro_batch_sizes=[512, 128], seconds=1)
    small, wide, narrow, drop = (unit.times[0] for unit in found.units)
    for time in (wide, narrow):
        assert time.forward_s > small.forward_s
        assert time.input_grad_s > 0
        assert time.weight_grad_s > small.weight_grad_s
        assert time.step_s > small.step_s > 0
    assert small.input_grad_s == 0
    assert small.weight_grad_s > 0
    assert (drop.weight_grad_s, drop.step_s) == (0, 0)
    assert drop.input_grad_s > 0
    assert found.units[1].times[1].forward_s < wide.forward_s


def test_frozen_parameters_take_no_weight_gradient() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 8))
    model[1].requires_grad_(False)
    times = [unit.times[0] for unit in measure(model, torch.randn(64, 64), _mean_square, seconds=0).units]
    assert times[1].weight_grad_s == times[1].step_s == 0
    assert times[1].input_grad_s > 0


@pytest.mark.parametrize("make", [VGG, lambda: nn.Sequential(VGG(), nn.Dropout(0.2))])
def test_the_model_is_not_changed(make: Callable[[], nn.Module]) -> None:
    model = make()
    model.eval()
    first = next(iter(model.parameters()))
    first.grad = torch.ones_like(first)
    images = torch.randn(4, 3, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kept, random = images.clone(), torch.get_rng_state()
    model[0].train() if isinstance(model, nn.Sequential) else model.train()
    measure(model, images, _mean_square, seconds=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(images, kept)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(first.grad, torch.ones_like(first))
    assert all(parameter.grad is None for parameter in model.parameters() if parameter is not first)
    assert model.training == (not isinstance(model, nn.Sequential))


def test_steadiness_is_reported() -> None:
    rounds: list[int] = []
    model = nn.Sequential(nn.Linear(4, 4))
    found = measure(model, torch.randn(4, 4), _mean_square, seconds=0, report=lambda it: rounds.append(it.num_rounds))
    assert rounds == [1, 2, 3, 4]  # the minimum, with no time at all
    # It ends as soon as the medians are steady, and otherwise when the time is over.
    steady = measure(model, torch.randn(4, 4), _mean_square, seconds=1e6, steady=10.0)
    assert steady.is_steady
    assert steady.assumptions[0].startswith("Measured in 4 rounds over ")
    rounds.clear()
    unsteady = measure(
        model, torch.randn(4, 4), _mean_square, seconds=0.3, steady=0.0, report=lambda it: rounds.append(it.num_rounds)
    )
    assert rounds == list(range(1, len(rounds) + 1))
    assert len(rounds) > 8
    assert not unsteady.is_steady
    assert unsteady.assumptions[0].startswith("NOT steady to 0.0 %: measured in ")
    assert "the least steady one (0) to" in unsteady.assumptions[0]
    assert found.digest != unsteady.digest
    assert "The model was in evaluation mode." not in found.assumptions
    model.eval()
    assert "The model was in evaluation mode." in measure(model, torch.randn(4, 4), _mean_square, seconds=0).assumptions


def test_one_row_is_measured_beside_two() -> None:
    found = measure(nn.Sequential(nn.Linear(3, 3)), torch.randn(1, 3), _mean_square, seconds=0)
    assert found.micro_batch_size == 1
    assert found.input_bytes == 12
    assert [size.micro_batch_size for size in found.units[0].sizes] == [2, 1]


def test_a_model_that_refuses_one_row_is_measured_on_two() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    found = measure(model, torch.randn(2, 3), _mean_square, seconds=0)
    assert found.micro_batch_size == 2
    assert [[time.micro_batch_size for time in unit.times] for unit in found.units] == [[2]] * 3
    (text,) = (text for text in found.assumptions if "rows" in text and "does not run" in text)
    assert text.startswith("Times are proportional to rows: the model does not run on 1 row (ValueError: ")
    with pytest.raises(InputError, match="fail on 1 rows"):
        measure(model, torch.randn(2, 3), _mean_square, micro_batch_sizes=[2, 1], seconds=0)


class OneRow(nn.Module):
    """Runs on a single row only."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.view(1, 3))
        return out


def test_a_model_of_one_row_is_measured_on_it_alone() -> None:
    found = measure(nn.Sequential(OneRow(), OneRow()), torch.randn(1, 3), _mean_square, seconds=0)
    assert found.micro_batch_size == 1
    assert [[time.micro_batch_size for time in unit.times] for unit in found.units] == [[1]] * 2


class Addmm(nn.Module):
    """A linear layer with torch.addmm, as in GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 64) / 8), nn.Parameter(torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, 64), self.weight).view(x.shape)


class Matrix(torch.autograd.Function):
    """A matrix product with both gradients in one function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


class Custom(nn.Module):
    """Calls an autograd function of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x: Tensor) -> Tensor:
        return Matrix.apply(x, self.weight)  # type: ignore[no-untyped-call, no-any-return]


class Checkpointed(nn.Module):
    """Recomputes a layer in its backward."""

    def __init__(self, *, reentrant: bool, dropout: float = 0.0, keeps_rng: bool = True) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 64), nn.Dropout(dropout))
        self.reentrant, self.keeps_rng = reentrant, keeps_rng

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=self.reentrant, preserve_rng_state=self.keeps_rng)  # type: ignore[no-any-return]


class CheckpointedPair(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        widths = (64, 32)
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(8, each), nn.ReLU(), nn.Linear(each, 8)) for each in widths)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = checkpoint(part, x, use_reentrant=self.reentrant)
        return x


def test_what_checkpointed_parts_save_again() -> None:
    def sizes(layer: nn.Module) -> tuple[int, int, tuple[int, ...]]:
        model = nn.Sequential(nn.Linear(8, 8), layer, nn.Linear(8, 8))
        found = measure(model, torch.randn(6, 8), _mean_square, seconds=0, micro_batch_sizes=[6]).units[1]
        return found.sizes[0].saved_bytes, found.sizes[0].pending_bytes or 0, found.recomputed_bytes

    row = 6 * 4
    # The inputs of both parts; again, the output of each ReLU.
    assert sizes(CheckpointedPair(reentrant=False)) == (16 * row, (16 + 96) * row, (64 * row,))
    saved, pending, (largest,) = sizes(CheckpointedPair(reentrant=True))
    assert (saved, pending) == (16 * row, 16 * row + largest)
    assert 64 * row <= largest <= 96 * row  # parts that run in the backward count as one
    assert sizes(nn.Linear(8, 8)) == (8 * row, 0, ())


class Slope(nn.Module):
    """Calls autograd in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(self.inner(x).square().sum(), x, create_graph=True)
        return slope


BLOCKS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "linear": (lambda: nn.Linear(64, 64), True),
    "addmm": (Addmm, True),
    "autograd function": (Custom, False),
    "parametrization": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)), False),
    "norm": (lambda: nn.LayerNorm(64), False),
    "checkpoint": (lambda: Checkpointed(reentrant=False), True),
    "reentrant checkpoint": (lambda: Checkpointed(reentrant=True), True),
    "autograd in forward": (Slope, False),
    "checkpoint with dropout": (lambda: Checkpointed(reentrant=False, dropout=0.1), True),
    "reentrant checkpoint with dropout": (lambda: Checkpointed(reentrant=True, dropout=0.1), True),
    "checkpoint without rng": (lambda: Checkpointed(reentrant=False, dropout=0.1, keeps_rng=False), False),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_the_weight_gradient_is_what_the_runtime_defers(name: str) -> None:
    make, is_deferred = BLOCKS[name]
    model = nn.Sequential(nn.Linear(64, 64), make(), nn.Linear(64, 64))
    found = measure(model, torch.randn(64, 64), _mean_square, seconds=0)
    time = found.units[1].times[0]
    assert time.input_grad_s > 0
    assert (time.weight_grad_s > 0) == is_deferred
    blocks, queue = find_blocks(model), None
    stage = TorchStage(blocks[1:2], 1, model, seed=0, is_split=False, device=torch.device("cpu"))
    payload = pack(torch.randn(64, 64, requires_grad=True))[0]
    expected = []
    try:
        _, graph = stage.run(payload, 0, Rows(0, 64), None, keep=True, defer=True)
        stage.backward(graph, [torch.ones(64, 64)])
        queue = graph.queue
    except PenstockError as error:
        what = "split the backward of" if name == "autograd in forward" else "run"
        expected = [f"The runtime cannot {what} 1 layer, first 1: {error.what}."]
    assert [text for text in found.assumptions if text.startswith("The runtime cannot")] == expected
    assert is_deferred == (queue is not None and len(queue) > 0)


def test_checkpointed_blocks_keep_their_inputs_only() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 4)) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts:
                x = checkpoint(part, x, use_reentrant=False)
            return x

    names = ["parts.0", "parts.1", "parts.2"]
    found = measure(Chain(), torch.randn(6, 4), _mean_square, blocks=names, seconds=0)
    assert [saved for _, saved in _bytes(found, 6)][:2] == [6 * 4 * 4] * 2


def test_under_autocast() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = measure(model, torch.randn(4, 8), lambda out: out.float().square().mean(), seconds=0)
    assert _bytes(found, 4)[0][0] == 4 * 16 * 2


def test_a_planner_can_use_it() -> None:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
    found = measure(model, torch.randn(8, 16), _mean_square, seconds=0)
    cluster = penstock.load_cluster("2 x cpu-1-thread @ 1 GB/s")
    plan = penstock.plan(found, cluster, 4, planner="balanced", schedule="1f1b")
    assert penstock.evaluate(plan, found, cluster).timeline.iteration_s > 0


@pytest.mark.parametrize(
    ("model", "inputs", "loss", "options", "words"),
    [
        (nn.ReLU, torch.ones(2, 2), _mean_square, {}, "no parameters"),
        (lambda: nn.Linear(2, 2, device="meta"), torch.ones(2, 2), _mean_square, {}, "meta device"),
        (nn.Sequential(nn.Linear(2, 2)).float, torch.ones(2, 2), lambda out: out, {}, r"tensor of shape \(2, 2\)"),
        (nn.Sequential(nn.Linear(2, 2)).float, torch.ones(2, 2), lambda out: 3, {}, "not a int"),
        (nn.Sequential(nn.Linear(2, 2)).float, torch.ones(2, 2), lambda out: out.detach().sum(), {}, "not depend"),
        (
            nn.Sequential(nn.Linear(2, 2)).float,
            torch.ones(2, 2),
            _mean_square,
            {"micro_batch_sizes": [2, 0]},
            "at least 1, not 0",
        ),
        (
            nn.Sequential(nn.Linear(2, 2)).float,
            torch.ones(4, 2),
            lambda out: (out - torch.ones(4, 2)).sum(),
            {},
            "fail on 2 rows: RuntimeError: .*\n.*as targets",
        ),
    ],
)
def test_models_that_cannot_be_measured(
    model: Callable[[], nn.Module], inputs: Any, loss: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        measure(model(), inputs, loss, seconds=0, **options)
