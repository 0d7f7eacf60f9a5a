import time
from itertools import pairwise

import pytest

from penstock.errors import InputError
from penstock.profile.analytic import BUILTIN_NAMES, analytic_profile
from penstock.profile.analytic.build import MAX_MICRO_BATCH_SIZE
from penstock.profile.analytic.operations import Kernel
from penstock.profile.analytic.roofline import KERNEL_S, pricer
from penstock.profile.device_kinds import KINDS
from penstock.profile.recipe import Precision, Recipe
from penstock.profile.types import Profile
from tests.support.paths import DOCS
from tests.support.undisturbed import undisturbed

PAGE = DOCS / "analytic.md"


def total_s(profile: Profile, *fields: str, index: int = 0) -> float:
    return sum(float(getattr(unit.times[index], field)) for unit in profile.units for field in fields)


def computed_s(profile: Profile, index: int = 0) -> float:
    return total_s(profile, "forward_s", "input_grad_s", "weight_grad_s", index=index)


def test_the_roofline() -> None:
    kind = KINDS["A100-40"]
    mixed, single = pricer(kind, Recipe()), pricer(kind, Recipe(precision="fp32"))
    by_arithmetic = 1e12 / (312e12 * 0.75)
    by_memory = 1e9 / (1.555e12 * 0.85)
    assert mixed.device_s([Kernel(1_000, 10**12)]) == pytest.approx(by_arithmetic)
    assert mixed.device_s([Kernel(10**9, 1_000)]) == pytest.approx(by_memory)
    assert mixed.device_s([Kernel(1_000, 10**12), Kernel(10**9)]) == pytest.approx(by_arithmetic + by_memory)
    assert mixed.device_s([Kernel(1), Kernel(1)]) == 2 * KERNEL_S
    assert single.device_s([Kernel(0, 10**12)]) == pytest.approx(1e12 / (19.5e12 * 0.75))


def test_the_host_limits_small_kernels_and_no_large_ones() -> None:
    priced = pricer(KINDS["A100-40"], Recipe())
    small, large = [Kernel(1_000)] * 10, [Kernel(10**9)] * 10
    assert priced.forward_s(small) == pytest.approx(10 * priced.kind.launch_s)
    assert priced.forward_s(large) == priced.device_s(large)
    # A small kernel among large ones is launched while they run.
    assert priced.forward_s([*large, *small]) == priced.device_s([*large, *small])
    first, second = priced.backward_s([], small, small)
    assert first == second == pytest.approx(10 * 0.25 * priced.kind.launch_s)
    assert priced.backward_s(small, [], [])[0] == pytest.approx(priced.forward_s(small))
    assert priced.backward_s([], large, large) == (priced.device_s(large), priced.device_s(large))
    assert priced.backward_s([], [], []) == (0.0, 0.0)


@pytest.mark.parametrize(("name", "rows"), [("gpt2-xl", 8), ("llama-3-8b", 4), ("bert-large", 32), ("vgg19", 64)])
def test_backward_takes_about_twice_the_forward(name: str, rows: int) -> None:
    profile = analytic_profile(name, kinds=["A100-40"], micro_batch_size=rows)
    forward_s = total_s(profile, "forward_s")
    assert 1.85 < total_s(profile, "input_grad_s", "weight_grad_s") / forward_s < 2.25


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_only_the_first_unit_has_no_input_gradient(name: str) -> None:
    profile = analytic_profile(name, kinds=["T4"], micro_batch_size=2)
    assert [unit.name for unit in profile.units if unit.times[0].input_grad_s == 0] == [profile.units[0].name]
    assert all(unit.times[0].forward_s > 0 and unit.times[0].weight_grad_s > 0 for unit in profile.units)


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_faster_kinds_take_less_time(name: str) -> None:
    order = ["H100", "A100-80", "A100-40", "V100-16", "T4"]
    profile = analytic_profile(name, kinds=order, micro_batch_size=8)
    # Three row counts for each kind, in order.
    whole = [computed_s(profile, 3 * index) for index in range(len(order))]
    # Where the host is the slower one, kinds take equally long, up to rounding.
    assert all(first <= second * (1 + 1e-9) for first, second in pairwise(whole))
    assert whole[0] < whole[-1]


def test_a_large_model_scales_as_its_matrix_products_do() -> None:
    profile = analytic_profile("llama-3-70b", kinds=["A100-40", "V100-16"], micro_batch_size=4, sequence=4096)
    assert computed_s(profile, 3) / computed_s(profile, 0) == pytest.approx(234 / 87.5, rel=0.03)


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_more_rows_take_longer_but_not_in_proportion(name: str) -> None:
    profile = analytic_profile(name, kinds=["A100-40"], micro_batch_size=1)
    for unit in profile.units:
        # Up to rounding: small passes take what the host needs, whatever their rows.
        one, two, four = (entry.forward_s for entry in unit.times)
        assert one <= two * (1 + 1e-9) <= four * (1 + 2e-9)
        assert two <= 2 * one * (1 + 1e-9)
        assert four <= 2 * two * (1 + 1e-9)
        small, double, quadruple = unit.sizes
        assert small.saved_bytes < double.saved_bytes <= 2 * small.saved_bytes
        assert quadruple.cut_bytes == 4 * small.cut_bytes


def test_step_reads_and_writes_28_bytes_for_a_parameter() -> None:
    precisions: tuple[Precision, ...] = ("bf16", "fp32")
    for precision in precisions:
        profile = analytic_profile(
            "llama-3-8b", kinds=["A100-80"], micro_batch_size=1, sequence=128, recipe=Recipe(precision=precision)
        )
        expected = 28 * 8_030_261_248 / (2.039e12 * 0.85)
        assert total_s(profile, "step_s") == pytest.approx(expected)


def test_fp32_is_slower_and_larger() -> None:
    mixed = analytic_profile("gpt2", kinds=["A100-40"], micro_batch_size=4)
    single = analytic_profile("gpt2", kinds=["A100-40"], micro_batch_size=4, recipe=Recipe(precision="fp32"))
    assert computed_s(single) > 3 * computed_s(mixed)
    assert single.units[1].sizes[0].cut_bytes == 2 * mixed.units[1].sizes[0].cut_bytes


@pytest.mark.parametrize(
    ("name", "kind", "precision", "rows", "sequence", "published_per_s", "computed_per_s"),
    [
        # NVIDIA's public examples for PyTorch, one device: ResNet-50 images and BERT-large sequences a second.
        ("resnet50", "A100-80", "bf16", 256, None, 2470, 2900),
        ("resnet50", "V100-16", "bf16", 256, None, 1200, 1287),
        ("resnet50", "V100-16", "fp32", 128, None, 367, 319),
        ("bert-large", "V100-16", "bf16", 64, 128, 172, 228),
        ("bert-large", "V100-16", "bf16", 8, 512, 30, 50),
        ("bert-large", "V100-16", "fp32", 32, 128, 40, 39),
    ],
)
def test_within_a_factor_of_two_of_published_rates_as_the_docs_say(
    name: str,
    kind: str,
    precision: Precision,
    rows: int,
    sequence: int | None,
    published_per_s: int,
    computed_per_s: int,
) -> None:
    profile = analytic_profile(
        name, kinds=[kind], micro_batch_size=rows, sequence=sequence, recipe=Recipe(precision=precision)
    )
    rate = rows / (computed_s(profile) + total_s(profile, "step_s"))
    assert 0.5 * published_per_s < rate < 2 * published_per_s
    assert round(rate) == computed_per_s
    assert f"| {published_per_s} | {computed_per_s} |" in PAGE.read_text(encoding="utf-8")


def test_the_example_of_the_docs() -> None:
    profile = analytic_profile("gpt2-xl", kinds=["A100-40"], micro_batch_size=4, sequence=1024)
    figures = (profile.num_units, round(1e3 * computed_s(profile)), round(1e3 * total_s(profile, "step_s")))
    assert figures == (98, 231, 35)
    assert "98 layers, 231 ms" in PAGE.read_text(encoding="utf-8")


@undisturbed
def test_building_a_large_model_is_quick() -> None:
    def once() -> float:
        start = time.perf_counter()
        analytic_profile("llama-3-70b", kinds=list(KINDS), micro_batch_size=1)
        return time.perf_counter() - start

    assert min(once() for _ in range(3)) < 0.1


def test_assumptions() -> None:
    text = " ".join(analytic_profile("gpt2", kinds=["T4"], micro_batch_size=1).assumptions)
    words = ("not measured", "FlashAttention", "causal mask halves", "share one table", "1,024 tokens", "master copy")
    for word in words:
        assert word in text
    longer = analytic_profile("llama-3-8b", kinds=["T4"], micro_batch_size=1, sequence=9000)
    assert any("beyond the configured 8,192" in text for text in longer.assumptions)
    assert any(
        "BatchNorm" in text for text in analytic_profile("resnet50", kinds=["T4"], micro_batch_size=1).assumptions
    )
    assert not any(
        "BatchNorm" in text for text in analytic_profile("vgg16", kinds=["T4"], micro_batch_size=1).assumptions
    )


@pytest.mark.parametrize("rows", [0, -1, True, 1.5, "4", None, MAX_MICRO_BATCH_SIZE + 1, float("nan")])
def test_bad_rows(rows: int) -> None:
    with pytest.raises(InputError, match="whole number") as caught:
        analytic_profile("gpt2", kinds=["T4"], micro_batch_size=rows)
    assert caught.value.where == "micro_batch_size"


@pytest.mark.parametrize("sequence", [0, -5, True, 2.0, "1024", 10**9, 1025])
def test_bad_sequence(sequence: int) -> None:
    with pytest.raises(InputError) as caught:
        analytic_profile("gpt2", kinds=["T4"], micro_batch_size=1, sequence=sequence)
    assert caught.value.where == "sequence"


def test_other_bad_arguments() -> None:
    with pytest.raises(InputError, match="unknown model 'gpt5'") as caught:
        analytic_profile("gpt5", kinds=["T4"], micro_batch_size=1)
    assert "gpt2-xl" in caught.value.hint
    with pytest.raises(InputError, match="no data sheet for device kind 'abacus'"):
        analytic_profile("gpt2", kinds=["T4", "abacus"], micro_batch_size=1)
    with pytest.raises(InputError, match="duplicate"):
        analytic_profile("gpt2", kinds=["T4", "T4"], micro_batch_size=1)
    with pytest.raises(InputError, match="at least one device kind"):
        analytic_profile("gpt2", kinds=[], micro_batch_size=1)
    with pytest.raises(InputError, match="precision"):
        analytic_profile("gpt2", kinds=["T4"], micro_batch_size=1, recipe=Recipe(precision="fp8"))
    with pytest.raises(InputError, match="images"):
        analytic_profile("vgg16", kinds=["T4"], micro_batch_size=1, sequence=128)
    with pytest.raises(InputError, match="bytes"):
        analytic_profile("llama-3-8b", kinds=["T4"], micro_batch_size=MAX_MICRO_BATCH_SIZE, sequence=10_000_000)


def test_one_kind_may_be_a_string() -> None:
    assert analytic_profile("gpt2", kinds="T4", micro_batch_size=1).kinds == ("T4",)
