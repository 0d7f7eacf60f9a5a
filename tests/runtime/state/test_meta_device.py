"""A model on the meta device: every rank materializes its part, with the values of a single process."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import penstock
from penstock.errors import InputError
from penstock.plan.types import Plan
from tests.support.runtime.meta_models import MODELS, fill, held, on_meta, resume, save_first, train, try_pipeline
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)

LENGTHS = {"gpt": 5, "vgg": 11, "resnet": 9, "mlp": 7, "own": 6, "placed": 6, "rotating": 4}


def plans(name: str) -> dict[int, list[Plan]]:
    last = LENGTHS[name]
    groups = [["d0"], ["d0"], ["d1"]]
    return {
        1: [plan_of([0, last], [["d0"]])],
        2: [
            plan_of([0, 2, last], [["d0"], ["d1"]], schedule="zb_h1"),
            plan_of([0, 1, 3, last], groups, backward=[["d1"], ["d0"], ["d1"]]),
        ],
        3: [plan_of([0, 1, 3, last], [["d2"], ["d1"], ["d0"]])],
    }


@pytest.mark.parametrize("name", list(LENGTHS))
def test_the_numbers_of_a_single_process(rank_pool: RankPool, name: str) -> None:
    losses, state = train(name, None)
    tied = name in ("gpt", "own", "placed")
    for num_ranks, candidates in plans(name).items():
        for plan in candidates:
            ranks = rank_pool.run(num_ranks, train, name, plan)
            assert {key for _, found in ranks for key in found} >= set(dict(MODELS[name][0]().named_parameters()))
            for rank_losses, found in ranks:
                # Before the first optimizer step no order of sums matters: the first loss is equal to the bit.
                assert torch.equal(rank_losses[0], losses[0])
                if not tied or num_ranks == 1:
                    assert all(map(torch.equal, rank_losses, losses))
                    assert all(torch.equal(found[key], state[key]) for key in found if key in state)
                else:
                    # The gradients of the tied embedding are summed in another order.
                    assert all(map(close, rank_losses, losses))
                    assert all(close(found[key], state[key]) for key in found)


def close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-6, atol=1e-6)


def test_replicas_get_the_same_values(rank_pool: RankPool) -> None:
    losses, _ = train("gpt", None)
    plan = plan_of([0, 2, 5], [["d0", "d1"], ["d2", "d0", "d1"]])
    for found, _ in rank_pool.run(3, train, "gpt", plan):
        assert all(torch.allclose(one, other, rtol=1e-5) for one, other in zip(found, losses, strict=True))


def test_a_rank_materializes_only_what_it_holds(rank_pool: RankPool) -> None:
    (first, total), (second, _) = rank_pool.run(2, held, "mlp", plan_of([0, 3, 7], [["d0"], ["d1"]]))
    assert first + second == total
    assert min(first, second) > 0


class Pieces(nn.Module):
    """Modules that keep their parameters in special ways."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.LSTM(3, 4, num_layers=2)
        self.words = nn.Embedding(5, 3, padding_idx=1)
        self.twin = nn.Linear(3, 5, bias=False)
        self.twin.weight = self.words.weight
        self.norm = nn.BatchNorm1d(4)
        self.again = self.norm

    def forward(self, x: Tensor) -> Tensor:
        made, _ = self.memory(self.words(x))
        found: Tensor = self.norm(made.transpose(1, 2))
        return found


def pieces() -> Pieces:
    with torch.device("meta"):
        return Pieces()


def test_one_process() -> None:
    before = torch.random.get_rng_state()
    model = pieces()
    assert penstock.materialize(model, seed=3) is model
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not any(item.is_meta or item.isnan().any() for item in model.state_dict().values())
    assert model.twin.weight is model.words.weight
    assert model.again is model.norm
    assert isinstance(model.memory.weight_ih_l0, nn.Parameter)
    # The twin is initialized later, without padding.
    assert model.words.weight[1].abs().sum() > 0
    assert model.forward(torch.zeros(2, 6, dtype=torch.long)).shape == (2, 4, 6)
    same, other = penstock.materialize(pieces(), seed=3), penstock.materialize(pieces(), seed=4)
    for name, item in model.named_parameters():
        assert torch.equal(item, same.get_parameter(name))
        assert torch.equal(item, other.get_parameter(name)) == name.startswith("norm")
    assert float(model.get_parameter("memory.weight_hh_l1").detach().abs().max()) <= 0.5


def test_a_value_does_not_depend_on_other_layers() -> None:
    """Layers of the same shape have different values. A model with the same first layers has the same values there."""
    with torch.device("meta"):
        longer = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
        shorter = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    penstock.materialize(longer)
    penstock.materialize(shorter)
    one, two = longer.get_parameter("0.weight"), longer.get_parameter("1.weight")
    assert torch.equal(one, shorter.get_parameter("0.weight"))
    assert torch.equal(two, shorter.get_parameter("1.weight"))
    assert not torch.equal(one, two)


def test_real_tensors_are_unchanged() -> None:
    with torch.device("meta"):
        part = nn.Linear(2, 2)
    model = nn.Sequential(nn.Linear(2, 2), part)
    kept = model.get_parameter("0.weight").detach().clone()
    model.get_parameter("1.bias").requires_grad_(False)
    penstock.materialize(model)
    assert torch.equal(model.get_parameter("0.weight"), kept)
    assert not model.get_parameter("1.bias").requires_grad


class Masked(nn.Linear):
    """Has a buffer that its reset_parameters does not fill."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("mask", torch.ones(2))


class Loose(nn.Linear):
    """Has a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.mask = torch.ones(2)


class Failing(nn.Linear):
    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            raise ZeroDivisionError("no values")


class Replacing(nn.Linear):
    def reset_parameters(self) -> None:
        self.weight = nn.Parameter(torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Masked, r"'1\.mask' would not be initialized: the model is on the meta device, and Masked does not fill it"),
        (Loose, r"'1\.mask' is a tensor on the meta device, but neither a parameter nor a buffer"),
        (lambda: Failing(2, 2), r"the initialization of '1' \(Failing\) raises ZeroDivisionError: no values"),
        (lambda: Replacing(2, 2), r"the initialization of '1' \(Replacing\) replaces the parameter 'weight'"),
        (
            lambda: nn.MultiheadAttention(2, 1),
            r"'1\.in_proj_weight' would not be initialized: .* has no reset_parameters\(\)",
        ),
    ],
)
def test_models_that_cannot_be_materialized(make: type[nn.Module], message: str) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 2), make())
    with pytest.raises(InputError, match=message):
        penstock.materialize(model)


def test_a_function_for_modules_that_do_not_fill_themselves() -> None:
    with pytest.raises(InputError, match=r"'0\.places' would not be initialized.*Embed has no reset_parameters"):
        penstock.materialize(on_meta("gpt"))
    model = penstock.materialize(on_meta("gpt"), init=fill)
    assert 0.05 < float(model.get_parameter("0.places").detach().std()) < 0.2


def test_all_ranks_raise_the_same_error(rank_pool: RankPool) -> None:
    message = rank_pool.run(2, try_pipeline, "gpt", plan_of([0, 2, 5], [["d0"], ["d1"]]))
    assert message[0] == message[1]
    assert message[0].startswith("InputError: '0.places' would not be initialized")
    assert 'init="checkpoint"' in message[0]
    # Only rank 1 has the failing module.
    message = rank_pool.run(2, try_pipeline, "meddling", plan_of([0, 2, 3], [["d0"], ["d1"]]))
    assert message[0] == message[1]
    assert "the initialization of '2' (Meddling) also fills '0.weight' of another module" in message[0]


@pytest.mark.parametrize("name", ["mlp", "gpt", "rotating"])
def test_a_start_from_a_checkpoint(rank_pool: RankPool, tmp_path: Path, name: str) -> None:
    first, second = plans(name)[2]
    for losses, _ in rank_pool.run(2, save_first, name, first, str(tmp_path)):
        first_losses = losses
    expected, _ = train(name, None)
    for losses, message in rank_pool.run(2, resume, name, second, str(tmp_path)):
        assert message.startswith('the parameters are not initialized: the pipeline was created with init="checkpoint"')
        assert all(map(close, [*first_losses, losses[0]], expected))
        if name != "gpt":
            assert all(map(torch.equal, [*first_losses, losses[0]], expected))


def test_non_persistent_buffers_need_values_with_a_checkpoint_too() -> None:
    with torch.device("meta"):
        bare = nn.Module()
        bare.register_buffer("angles", torch.ones(3), persistent=False)
        model = nn.Sequential(nn.Linear(2, 2), bare)
    with pytest.raises(InputError, match=r"'1\.angles' would not be initialized"):
        penstock.materialize(model, init="checkpoint")
