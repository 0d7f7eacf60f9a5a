"""Precision, eager attention, activation checkpointing and tensor parallelism of computed profiles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.profile.analytic import analytic_profile
from penstock.profile.analytic.matmul import Product, product_rate
from penstock.profile.data_sheets import MISALIGNED_FRACTION
from penstock.profile.device_kinds import KINDS
from penstock.profile.recipe import Checkpointing, Precision, Recipe
from penstock.profile.types import Profile
from tests.support.reach import reach, reaches

GPT = {"model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 1000}
BLOCK = slice(1, -1)


def computed(
    recipe: Recipe, *, rows: int = 4, kind: str = "A100-80", config: dict[str, object] | None = None
) -> Profile:
    return analytic_profile(config or dict(GPT), kinds=[kind], micro_batch_size=rows, recipe=recipe)


def saved(profile: Profile) -> list[int]:
    return [unit.sizes[0].saved_bytes for unit in profile.units]


def seconds(profile: Profile, *fields: str) -> float:
    return sum(float(getattr(unit.times[0], field)) for unit in profile.units for field in fields)


def test_eager_attention_saves_the_scores() -> None:
    fused, eager = computed(Recipe()), computed(Recipe(attention="eager"))
    rows, heads, tokens, size = 4, 4, 128, 2
    # Instead of the log-sum-exp in fp32, the probabilities.
    more = rows * heads * tokens * tokens * size - rows * heads * tokens * 4
    assert saved(eager)[1] - saved(fused)[1] == more
    assert saved(eager)[2] == saved(fused)[2]
    assert seconds(eager, "forward_s") > seconds(fused, "forward_s")
    assert any("Attention is eager" in note for note in eager.assumptions)
    assert not any("FlashAttention" in note for note in eager.assumptions)


@pytest.mark.parametrize("attention", ["fused", "eager"])
def test_selective_checkpointing_saves_what_fused_attention_saves_but_for_the_sums(attention: str) -> None:
    plain = computed(Recipe(attention=attention))  # type: ignore[arg-type]
    selective = computed(Recipe(attention=attention, checkpointing="selective"))  # type: ignore[arg-type]
    if attention == "fused":
        assert selective.units == plain.units
        return
    sums = 4 * 4 * 128 * 4
    assert saved(selective)[1] == saved(computed(Recipe()))[1] - sums
    assert selective.units[1].times[0].input_grad_s > plain.units[1].times[0].input_grad_s
    assert selective.units[2] == plain.units[2]


def test_full_checkpointing_keeps_the_inputs_and_runs_the_forward_again() -> None:
    # Large enough for the device to be slower than its host.
    config: dict[str, object] = {**GPT, "n_embd": 2048, "n_head": 16}
    plain, full = (
        computed(Recipe(checkpointing=checkpointing), rows=256, config=config) for checkpointing in ("none", "full")
    )
    for before, unit, old in zip(full.units, full.units[1:-1], plain.units[1:-1], strict=False):
        assert unit.sizes[0].saved_bytes == before.sizes[0].cut_bytes < old.sizes[0].saved_bytes
        assert unit.times[0].forward_s == old.times[0].forward_s
        assert unit.times[0].weight_grad_s == old.times[0].weight_grad_s
        assert unit.times[0].input_grad_s == pytest.approx(old.times[0].input_grad_s + old.times[0].forward_s)
    assert (full.units[0], full.units[-1]) == (plain.units[0], plain.units[-1])


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32", "tf32", "fp8"])
def test_bytes_by_precision(precision: Precision) -> None:
    profile = computed(Recipe(precision=precision), kind="H100")
    wide = 2 if precision in ("fp32", "tf32") else 1
    mixed = computed(Recipe(), kind="H100")
    assert profile.units[1].sizes[0].cut_bytes == wide * mixed.units[1].sizes[0].cut_bytes
    assert profile.units[1].parameter_bytes == wide * mixed.units[1].parameter_bytes
    assert profile.optimizer_ratio == (2.0 if wide == 2 else 6.0)


def test_faster_precisions_are_faster() -> None:
    config: dict[str, object] = {"model_type": "llama", "num_hidden_layers": 2, "vocab_size": 32000}
    precisions: tuple[Precision, ...] = ("fp8", "bf16", "tf32", "fp32")
    times = [
        seconds(computed(Recipe(precision=precision), kind="H100", config=config), "forward_s", "weight_grad_s")
        for precision in precisions
    ]
    assert times == sorted(times)
    assert times[0] < 0.8 * times[1] < 0.5 * times[2]
    assert computed(Recipe(), kind="H100").units == computed(Recipe(precision="fp16"), kind="H100").units


def test_an_fp32_head_changes_the_last_layer_only() -> None:
    plain, wide = computed(Recipe()), computed(Recipe(fp32_head=True))
    assert wide.units[:-1] == plain.units[:-1]
    assert wide.units[-1].sizes[0].saved_bytes > plain.units[-1].sizes[0].saved_bytes


def test_products_use_a_device_by_their_shape() -> None:
    kind = KINDS["A100-80"]
    peak = kind.matmul_rate()

    def part(rows: int, columns: int, depth: int, *, batch: int = 1, lengths: tuple[int, ...] = ()) -> float:
        product = Product(rows=rows, columns=columns, depth=depth, batch=batch, contiguous=lengths)
        return product_rate(product, kind, "bf16") / peak

    assert part(4096, 4096, 4096) == 1.0
    assert part(64, 64, 512) == pytest.approx(1 / 108)
    assert part(64, 64, 512, batch=54) == pytest.approx(0.5)
    assert part(64, 64, 108 * 1024) == 1.0  # the sum is split
    assert part(8192, 32, 4096) == 0.5  # tiles are half empty
    assert part(4096, 50257, 1024, lengths=(50257,)) == MISALIGNED_FRACTION
    assert part(4096, 50304, 1024, lengths=(50304,)) == pytest.approx(1.0)
    # Plain fp32 has no tiles to fill, and rows of 4-byte numbers are aligned sooner.
    odd = Product(rows=64, columns=100, depth=64, contiguous=(100,))
    assert product_rate(odd, kind, "fp32") == kind.matmul_rate("fp32")
    aligned = Product(rows=8192, columns=6404, depth=4096, contiguous=(6404,))
    assert product_rate(aligned, kind, "tf32") > 0.9 * kind.matmul_rate("tf32")
    assert product_rate(aligned, kind, "bf16") == pytest.approx(MISALIGNED_FRACTION * peak)


@reaches(shared=0.3, checkpointed=0.3)
@given(
    st.sampled_from([1, 2, 4]), st.sampled_from(["none", "selective", "full"]), st.sampled_from(["fused", "eager"]),
    st.integers(1, 16),
)  # fmt: skip
def test_a_group_of_gpus_shares_every_layer(
    count: int, checkpointing: Checkpointing, attention: str, rows: int
) -> None:
    alone = computed(Recipe(checkpointing=checkpointing, attention=attention), rows=rows)  # type: ignore[arg-type]
    recipe = Recipe(checkpointing=checkpointing, attention=attention, tensor_parallel=count)  # type: ignore[arg-type]
    shared = computed(recipe, rows=rows)
    if checkpointing != "none":
        reach("checkpointed")
    if count == 1:
        assert shared == alone
        return
    reach("shared")
    assert shared.kinds == (f"A100-80*{count}",)
    for ours, whole in zip(shared.units, alone.units, strict=True):
        # The residual stream and the norms are on every GPU; products and attention are divided.
        assert ours.sizes[0].cut_bytes == whole.sizes[0].cut_bytes
        assert whole.parameter_bytes / count <= ours.parameter_bytes < whole.parameter_bytes
        assert ours.sizes[0].saved_bytes <= whole.sizes[0].saved_bytes
    assert shared.ties[0].parameter_bytes == shared.units[-1].parameter_bytes - 2 * 256 * 2


def test_layers_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(InputError, match=r"heads \(4\) must be divisible by the tensor-parallel degree \(3\)"):
        computed(Recipe(tensor_parallel=3))
    with pytest.raises(InputError, match="resnet50 cannot be computed with layers shared by 2 GPUs"):
        analytic_profile("resnet50", kinds=["T4"], micro_batch_size=1, recipe=Recipe(tensor_parallel=2))
    with pytest.raises(InputError, match=r"A100-80\*4 is a group of 4 GPUs"):
        computed(Recipe(tensor_parallel=2), kind="A100-80*4")
    with pytest.raises(InputError, match="T4 has no fp8 products"):
        computed(Recipe(precision="fp8"), kind="T4")
    with pytest.raises(InputError, match="unknown attention 'slow'"):
        computed(Recipe(attention="slow"))  # type: ignore[arg-type]


def test_measured_all_reduces_replace_the_estimate() -> None:
    def all_reduce_s(num_devices: int, num_bytes: float) -> float:
        assert num_devices == 2
        return 1.0

    arguments = {"kinds": ["A100-80"], "micro_batch_size": 4, "recipe": Recipe(tensor_parallel=2)}
    slow = analytic_profile(dict(GPT), **arguments, all_reduce=all_reduce_s)  # type: ignore[arg-type]
    # The embedding and every half of a block in the forward; every half and the head in the backward.
    assert int(seconds(slow, "forward_s")) == 1 + 4
    assert int(seconds(slow, "input_grad_s")) == 4 + 1
