"""A model on the meta device: every rank makes its part real, with the values that one process would have."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import penstock
from penstock.errors import InputError
from penstock.plan.types import Plan
from tests.support.runtime.meta_models import MODELS, fill, go_on, held, on_meta, save_first, train, try_pipeline
from tests.support.runtime.user_models import plan_of
from tests.support.runtime.world import World

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
def test_the_numbers_of_one_process(world: World, name: str) -> None:
    losses, state = train(name, None)
    tied = name in ("gpt", "own", "placed")
    for num_ranks, several in plans(name).items():
        for plan in several:
            ranks = world.run(num_ranks, train, name, plan)
            assert {key for _, found in ranks for key in found} >= set(dict(MODELS[name][0]().named_parameters()))
            for found_losses, found in ranks:
                # Before the first step nothing has been added up yet: values and the first loss are the same bits.
                assert torch.equal(found_losses[0], losses[0])
                if not tied or num_ranks == 1:
                    assert all(map(torch.equal, found_losses, losses))
                    assert all(torch.equal(found[key], state[key]) for key in found if key in state)
                else:
                    # The shared embedding's gradients are added in another order.
                    assert all(map(close, found_losses, losses))
                    assert all(close(found[key], state[key]) for key in found)


def close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-6, atol=1e-6)


def test_replicas_get_the_same_values(world: World) -> None:
    losses, _ = train("gpt", None)
    plan = plan_of([0, 2, 5], [["d0", "d1"], ["d2", "d0", "d1"]])
    for found, _ in world.run(3, train, "gpt", plan):
        assert all(torch.allclose(one, other, rtol=1e-5) for one, other in zip(found, losses, strict=True))


def test_a_rank_makes_real_only_what_it_holds(world: World) -> None:
    (first, total), (second, _) = world.run(2, held, "mlp", plan_of([0, 3, 7], [["d0"], ["d1"]]))
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
    # The twin is later, and does not know of padding.
    assert model.words.weight[1].abs().sum() > 0
    assert model.forward(torch.zeros(2, 6, dtype=torch.long)).shape == (2, 4, 6)
    same, other = penstock.materialize(pieces(), seed=3), penstock.materialize(pieces(), seed=4)
    for name, item in model.named_parameters():
        assert torch.equal(item, same.get_parameter(name))
        assert torch.equal(item, other.get_parameter(name)) == name.startswith("norm")
    assert float(model.get_parameter("memory.weight_hh_l1").detach().abs().max()) <= 0.5


def test_a_value_does_not_depend_on_what_else_is_made() -> None:
    """Two layers of one shape have different values; a model that begins alike has the same ones there."""
    with torch.device("meta"):
        longer = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
        shorter = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    penstock.materialize(longer)
    penstock.materialize(shorter)
    one, two = longer.get_parameter("0.weight"), longer.get_parameter("1.weight")
    assert torch.equal(one, shorter.get_parameter("0.weight"))
    assert torch.equal(two, shorter.get_parameter("1.weight"))
    assert not torch.equal(one, two)


def test_what_is_real_stays_as_it_is() -> None:
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
    ("make", "told"),
    [
        (Masked, r"nothing gives '1\.mask' its values: the model is on the meta device, and Masked does not fill it"),
        (Loose, r"'1\.mask' is a tensor on the meta device, but neither a parameter nor a buffer"),
        (lambda: Failing(2, 2), r"what gives '1' \(Failing\) its values fails on it: ZeroDivisionError: no values"),
        (lambda: Replacing(2, 2), r"what gives '1' \(Replacing\) its values puts another parameter in the place"),
        (lambda: nn.MultiheadAttention(2, 1), r"'1\.in_proj_weight' its values: .* has no reset_parameters\(\)"),
    ],
)
def test_what_cannot_be_made(make: type[nn.Module], told: str) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 2), make())
    with pytest.raises(InputError, match=told):
        penstock.materialize(model)


def test_a_function_for_modules_that_do_not_fill_themselves() -> None:
    with pytest.raises(InputError, match=r"nothing gives '0\.places' its values.*Embed has no reset_parameters"):
        penstock.materialize(on_meta("gpt"))
    model = penstock.materialize(on_meta("gpt"), init=fill)
    assert 0.05 < float(model.get_parameter("0.places").detach().std()) < 0.2


def test_what_is_refused_is_refused_by_all_alike(world: World) -> None:
    told = world.run(2, try_pipeline, "gpt", plan_of([0, 2, 5], [["d0"], ["d1"]]))
    assert told[0] == told[1]
    assert told[0].startswith("InputError: nothing gives '0.places' its values")
    assert 'init="checkpoint"' in told[0]
    # Only rank 1 has the module that does it.
    told = world.run(2, try_pipeline, "meddling", plan_of([0, 2, 3], [["d0"], ["d1"]]))
    assert told[0] == told[1]
    assert "what gives '2' (Meddling) its values also fills '0.weight' of another module" in told[0]


@pytest.mark.parametrize("name", ["mlp", "gpt", "rotating"])
def test_a_start_from_a_checkpoint(world: World, tmp_path: Path, name: str) -> None:
    first, second = plans(name)[2]
    for losses, _ in world.run(2, save_first, name, first, str(tmp_path)):
        begun = losses
    wanted, _ = train(name, None)
    for losses, told in world.run(2, go_on, name, second, str(tmp_path)):
        assert told.startswith('the model has no values yet: the pipeline was made with init="checkpoint"')
        assert all(map(close, [*begun, losses[0]], wanted))
        if name != "gpt":
            assert all(map(torch.equal, [*begun, losses[0]], wanted))


def test_buffers_outside_the_state_need_values_also_then() -> None:
    with torch.device("meta"):
        bare = nn.Module()
        bare.register_buffer("angles", torch.ones(3), persistent=False)
        model = nn.Sequential(nn.Linear(2, 2), bare)
    with pytest.raises(InputError, match=r"nothing gives '1\.angles' its values"):
        penstock.materialize(model, init="checkpoint")
