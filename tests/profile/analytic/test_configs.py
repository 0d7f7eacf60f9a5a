import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import io
from penstock.errors import InputError
from penstock.profile.analytic import BUILTIN_NAMES, ParsedConfig, analytic_profile, read_config
from penstock.profile.analytic.architectures import ARCHITECTURES
from penstock.profile.analytic.architectures.decoders import Gpt2Config, LlamaConfig
from penstock.profile.analytic.architectures.encoders import BertConfig, VitConfig
from penstock.profile.analytic.builtin import BUILTIN
from penstock.profile.types import FORMAT, Profile
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

GPT2_XL = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "activation_function": "gelu_new",
    "n_embd": 1600,
    "n_layer": 48,
    "n_head": 25,
    "n_positions": 1024,
    "n_inner": None,
    "vocab_size": 50257,
    "tie_word_embeddings": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "rope_theta": 500000.0,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
VIT = {
    "model_type": "vit",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "num_labels": 1000,
    "qkv_bias": True,
}
EXAMPLES: list[dict[str, Any]] = [GPT2_XL, LLAMA, BERT, VIT]


def read(config: dict[str, Any]) -> ParsedConfig:
    return read_config(json.dumps(config), where="config.json")


@pytest.mark.parametrize(
    ("config", "name"),
    [(GPT2_XL, "gpt2-xl"), (LLAMA, "llama-3-8b"), (BERT, "bert-large"), (VIT, "vit-l-16")],
)
def test_a_config_gives_the_same_as_the_name(config: dict[str, Any], name: str) -> None:
    named = analytic_profile(name, kinds=["T4"], micro_batch_size=2)
    for given_config in (read(config), config):
        assert analytic_profile(given_config, kinds=["T4"], micro_batch_size=2).units == named.units
    assert analytic_profile(config, kinds=["T4"], micro_batch_size=2).ties == named.ties


def test_the_name_of_a_profile_from_a_config() -> None:
    assert analytic_profile(GPT2_XL, kinds=["T4"], micro_batch_size=1).name == "gpt2-48x1600"
    assert analytic_profile(LLAMA, kinds=["T4"], micro_batch_size=1).name == "llama-32x4096"


def test_missing_keys_take_the_documented_default_and_are_listed() -> None:
    found = read({"model_type": "gpt2", "n_layer": 2, "n_inner": None})
    assert found.config == Gpt2Config(n_layer=2)
    assert found.defaulted == ("vocab_size", "n_positions", "n_embd", "n_head", "tie_word_embeddings")
    profile = analytic_profile(found, kinds=["T4"], micro_batch_size=1)
    assert "vocab_size, n_positions, n_embd, n_head, tie_word_embeddings." in profile.assumptions[-1]
    complete = analytic_profile(read({**LLAMA}), kinds=["T4"], micro_batch_size=1)
    assert not any("default" in text for text in complete.assumptions)


def test_defaults_of_the_families() -> None:
    assert read({"model_type": "llama"}).config == LlamaConfig()
    assert read({"model_type": "bert"}).config == BertConfig()
    assert read({"model_type": "vit"}).config == VitConfig()
    # GPT-2's defaults are those of the smallest GPT-2.
    assert BUILTIN["gpt2"] == Gpt2Config()


def test_labels_of_a_vit_are_counted_if_missing() -> None:
    labels = {str(index): f"LABEL_{index}" for index in range(10)}
    config = {key: value for key, value in VIT.items() if key != "num_labels"}
    found = read({**config, "id2label": labels})
    assert isinstance(found.config, VitConfig)
    assert (found.config.num_labels, found.defaulted) == (10, ())


def test_keys_that_change_the_count() -> None:
    def parameters(profile: Profile) -> int:
        shared = sum(tie.parameter_bytes for tie in profile.ties)
        return (sum(unit.parameter_bytes for unit in profile.units) - shared) // 2

    def count(config: dict[str, Any]) -> int:
        return parameters(analytic_profile(config, kinds=["T4"], micro_batch_size=1))

    base = count(LLAMA)
    assert base - count({**LLAMA, "tie_word_embeddings": True}) == 128256 * 4096
    # Biases of q (4096), k and v (1024 each) and o (4096) in 32 layers.
    assert count({**LLAMA, "attention_bias": True}) - base == 32 * (4096 + 1024 + 1024 + 4096)
    assert count({**LLAMA, "mlp_bias": True}) - base == 32 * (14336 + 14336 + 4096)
    # Every head has keys and values of its own: 2 x 4096 x (4096 - 1024) more in 32 layers.
    assert count({**LLAMA, "num_key_value_heads": None}) - base == 32 * 2 * 4096 * 3072
    # Heads of 64 instead of 128 halve all four products of attention.
    assert base - count({**LLAMA, "head_dim": 64}) == 32 * (2 * 4096 * 2048 + 2 * 4096 * 512)
    assert count({**VIT, "qkv_bias": False}) == count(VIT) - 24 * 3 * 1024
    assert count({**GPT2_XL, "n_inner": 3200}) == count(GPT2_XL) - 48 * (2 * 1600 * 3200 + 3200)
    assert count({**GPT2_XL, "tie_word_embeddings": False}) == count(GPT2_XL) + 50257 * 1600


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "broken JSON"),
        ("{", "broken JSON"),
        ("[" * 100_000, "broken JSON"),
        ('{"model_type": "gpt2", "n_embd": ' + "9" * 5000 + "}", "broken JSON"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{}", "but is missing"),
        ('{"model_type": 7}', "but is not a string"),
        ('{"model_type": "mamba"}', "not 'mamba'"),
        ('{"model_type": "gpt2", "n_embd": "768"}', "Expected `int"),
        ('{"model_type": "gpt2", "n_embd": true}', "Expected `int"),
        ('{"model_type": "gpt2", "n_embd": null}', "Expected `int"),
        ('{"model_type": "gpt2", "n_embd": 768.5}', "Expected `int"),
        ('{"model_type": "gpt2", "n_embd": NaN}', "Expected `int"),
        ('{"model_type": "gpt2", "n_embd": 0}', ">= 1"),
        ('{"model_type": "gpt2", "n_embd": -768}', ">= 1"),
        ('{"model_type": "gpt2", "n_embd": 10000001}', "<= 10000000"),
        ('{"model_type": "gpt2", "n_layer": 10001}', "<= 10000"),
        ('{"model_type": "gpt2", "n_head": 7}', "n_embd (768) must be divisible by n_head (7)"),
        ('{"model_type": "llama", "num_attention_heads": 33}', "must be divisible"),
        ('{"model_type": "llama", "num_key_value_heads": 5}', "must be divisible"),
        ('{"model_type": "bert", "num_attention_heads": 5}', "must be divisible"),
        ('{"model_type": "vit", "patch_size": 225}', "larger than image_size"),
        ('{"model_type": "vit", "image_size": [224, 224]}', "Expected `int"),
        ('{"model_type": "bert", "tie_word_embeddings": 1}', "Expected `bool"),
    ],
)
def test_errors(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config(text, where="config.json")
    assert what in caught.value.what
    assert caught.value.where.startswith("config.json")


def test_errors_name_the_place() -> None:
    with pytest.raises(InputError) as caught:
        read_config('{"model_type": "gpt2", "n_embd": 0}', where="config.json")
    assert caught.value.where == "config.json, at $.n_embd"
    with pytest.raises(InputError) as caught:
        read_config('{"model_type": "gpt2",\n "n_embd" 0}', where="config.json")
    assert caught.value.where == "config.json:2:11"


def test_a_config_made_by_hand_is_checked_too() -> None:
    with pytest.raises(InputError):
        analytic_profile(ParsedConfig(config=Gpt2Config(n_embd=-1)), kinds=["T4"], micro_batch_size=1)


def test_the_longest_chain() -> None:
    profile = analytic_profile({"model_type": "gpt2", "n_layer": 10_000}, kinds=["T4"], micro_batch_size=1)
    assert profile.num_units == 20_002


def test_names_are_not_configs() -> None:
    for name in BUILTIN_NAMES:
        with pytest.raises(InputError):
            read_config(name, where="config.json")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(1, 64),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
DEFAULTS: list[dict[str, Any]] = [{"model_type": family} for family in ARCHITECTURES]
KEYS = sorted({key for example in EXAMPLES for key in example} | {"id2label", "unused"})


@reaches(profiled=0.1, refused=0.05, changed=0.1)
@examples(300)
@given(
    example=st.sampled_from(EXAMPLES),
    changes=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3),
    dropped=st.sets(st.sampled_from(KEYS), max_size=3),
    rows=st.integers(1, 64),
)
def test_mutated_configs_give_a_profile_or_an_input_error(
    example: dict[str, Any], changes: dict[str, Any], dropped: set[str], rows: int
) -> None:
    config = {key: value for key, value in {**example, **changes}.items() if key not in dropped}
    try:
        profile = analytic_profile(read(config), kinds=["A100-40"], micro_batch_size=rows)
    except InputError:
        reach("refused")
        return
    reach("profiled")
    reach("changed", config != example)
    assert profile.num_units >= 4
    assert all(unit.parameter_bytes > 0 for unit in profile.units)


@reaches(profiled=0.1, refused=0.1)
@examples(500)
@given(data=st.data(), example=st.sampled_from(DEFAULTS), rows=st.integers(1, 64))
def test_every_key_of_every_architecture_takes_any_value(
    data: st.DataObject, example: dict[str, Any], rows: int
) -> None:
    kind = ARCHITECTURES[example["model_type"]]
    keys = [*kind.__struct_fields__, *kind.ALIASES, *kind.REQUIRED, "id2label", "quantization_config"]
    config = {**example, **data.draw(st.dictionaries(st.sampled_from(keys), VALUES, min_size=1, max_size=3))}
    try:
        profile = analytic_profile(config, kinds=["A100-40"], micro_batch_size=rows)
    except InputError:
        reach("refused")
        return
    reach("profiled")
    encoded = io.encode_json(profile)
    assert io.decode_json(encoded, Profile, where="test", expected_format=FORMAT) == profile


@reaches(accepted=0.1, refused=0.1)
@examples(300)
@given(example=st.sampled_from(EXAMPLES), index=st.integers(0, 10_000), inserted=st.text(max_size=3))
def test_mutated_texts_give_a_config_or_an_input_error(example: dict[str, Any], index: int, inserted: str) -> None:
    text = json.dumps(example)
    start = index % len(text)
    try:
        found = read_config(text[:start] + inserted + text[start + 1 :], where="config.json")
    except InputError:
        reach("refused")
        return
    reach("accepted")
    assert found.family == example["model_type"]
