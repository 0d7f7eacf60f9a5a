import pytest

from penstock import io
from penstock.profile.analytic import BUILTIN_NAMES, analytic_profile
from penstock.profile.recipe import Recipe
from penstock.profile.types import FORMAT, Profile

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    # Embeddings, encoder and pooler have 335,141,888. On top: masked words, a dense layer of 1,024 x 1,024 + 1,024,
    # a norm of 2 x 1,024 and a bias of 30,522; next sentence, 2 x 1,024 + 2.
    "bert-large": 335_141_888 + 1_049_600 + 2_048 + 30_522 + 2_050,
    "vit-l-16": 304_326_632,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
}


def parameters(profile: Profile, element_bytes: int) -> float:
    shared = sum(tie.parameter_bytes * (len(tie.units) - 1) for tie in profile.ties)
    return (sum(unit.parameter_bytes for unit in profile.units) - shared) / element_bytes


def test_all_names_are_published() -> None:
    assert set(BUILTIN_NAMES) == set(PUBLISHED)


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    assert parameters(analytic_profile(name, kinds=["T4"], micro_batch_size=1), 2) == PUBLISHED[name]
    assert (
        parameters(analytic_profile(name, kinds=["T4"], micro_batch_size=3, recipe=Recipe(precision="fp32")), 4)
        == PUBLISHED[name]
    )


@pytest.mark.parametrize(
    ("name", "table"),
    [("gpt2-xl", 50257 * 1600), ("bert-large", 30522 * 1024), ("llama-3-8b", 0), ("vit-l-16", 0), ("vgg16", 0)],
)
def test_ties(name: str, table: int) -> None:
    profile = analytic_profile(name, kinds=["T4"], micro_batch_size=1)
    assert [tie.parameter_bytes for tie in profile.ties] == ([2 * table] if table else [])
    assert all(tie.units == (0, profile.num_units - 1) for tie in profile.ties)


@pytest.mark.parametrize(
    ("name", "count", "first", "second", "last"),
    [
        ("gpt2", 2 + 2 * 12, "embedding", "block.0.attn", "head"),
        ("llama-3-70b", 2 + 2 * 80, "embedding", "block.0.attn", "head"),
        ("vit-l-16", 2 + 2 * 24, "embedding", "block.0.attn", "head"),
        ("vgg16", 13 + 3, "conv1_1", "conv1_2", "fc8"),
        ("vgg19", 16 + 3, "conv1_1", "conv1_2", "fc8"),
        ("resnet50", 1 + 16 + 1, "stem", "layer1.0", "head"),
        ("resnet152", 1 + 50 + 1, "stem", "layer1.0", "head"),
    ],
)
def test_units(name: str, count: int, first: str, second: str, last: str) -> None:
    units = analytic_profile(name, kinds=["T4"], micro_batch_size=1).units
    assert (len(units), units[0].name, units[1].name, units[-1].name) == (count, first, second, last)


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_the_profile_is_a_valid_file(name: str) -> None:
    profile = analytic_profile(name, kinds=["A100-40", "T4"], micro_batch_size=4)
    data = io.encode_json(profile)
    assert io.decode_json(data, Profile, where="test", expected_format=FORMAT) == profile
    assert profile.kinds == ("A100-40", "T4")
    assert [size.micro_batch_size for size in profile.units[0].sizes] == [4, 8, 16]
    assert {time.micro_batch_size for time in profile.units[0].times} == {4, 8, 16}


def test_optimizer_ratios() -> None:
    mixed = analytic_profile("gpt2", kinds=["T4"], micro_batch_size=1)
    single = analytic_profile("gpt2", kinds=["T4"], micro_batch_size=1, recipe=Recipe(precision="fp32"))
    assert (mixed.gradient_ratio, mixed.optimizer_ratio) == (1.0, 6.0)
    assert (single.gradient_ratio, single.optimizer_ratio) == (1.0, 2.0)


def test_inputs() -> None:
    # Token ids of 8 bytes; words and sentences for BERT; images of 3 x 224 x 224 numbers.
    assert analytic_profile("gpt2", kinds=["T4"], micro_batch_size=4, sequence=512).input_bytes == 4 * 512 * 8
    assert analytic_profile("bert-large", kinds=["T4"], micro_batch_size=4, sequence=128).input_bytes == 4 * 128 * 16
    for name in ("vit-l-16", "vgg16", "resnet50"):
        assert analytic_profile(name, kinds=["T4"], micro_batch_size=4).input_bytes == 4 * 3 * 224 * 224 * 2
