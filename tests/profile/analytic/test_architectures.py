"""What the architectures add to plain blocks: windows, experts, latent attention, encoders with decoders, refusals."""

from typing import Any

import pytest

from penstock.errors import InputError
from penstock.profile.analytic import analytic_profile
from penstock.profile.analytic.architectures import ARCHITECTURES
from penstock.profile.analytic.architectures.decoders import FalconConfig, GptNeoxConfig
from penstock.profile.analytic.architectures.encoder_decoders import T5Config, WhisperConfig
from penstock.profile.analytic.architectures.encoders import ClipConfig
from penstock.profile.analytic.architectures.experts import MixtralConfig
from penstock.profile.analytic.attention import attention
from penstock.profile.analytic.model_parts import Batch, Design, Part
from penstock.profile.types import Profile

BATCH = Batch(micro_batch_size=2, sequence=16)
TOKENS = 32


def computed(config: dict[str, Any], *, sequence: int | None = 64, rows: int = 1) -> Profile:
    return analytic_profile(config, kinds=["A100-80"], micro_batch_size=rows, sequence=sequence)


def cuts(design: Design) -> dict[str, int]:
    return {layer.name: design.parts[layer.part].cut_bytes for layer in design.chain}


def forward_flops(part: Part) -> int:
    return sum(kernel.flops for operation in part.operations for kernel in operation.forward)


def seconds(profile: Profile, index: int) -> float:
    time = profile.units[index].times[0]
    return time.forward_s + time.input_grad_s + time.weight_grad_s


@pytest.mark.parametrize("window", [1, 3, 7, 16, 40])
def test_a_window_limits_the_pairs(window: int) -> None:
    # Twice the pairs of a query and a key in (q - window, q], as an area: the diagonal counts half.
    area = 2 * sum(min(query, window) for query in range(16)) + 16 - max(16 - window, 0)
    item = attention("x", 2, 16, heads=4, key_value_heads=4, head_size=8, causal=True, element_bytes=2, window=window)
    assert item.forward[0].flops == 2 * 4 * area * (8 + 8)
    # Two products forward, five backward.
    assert 2 * item.input_grad[0].flops == 5 * item.forward[0].flops


def test_attention_with_narrow_values_and_other_keys() -> None:
    item = attention(
        "x",
        2,
        16,
        heads=4,
        key_value_heads=4,
        head_size=12,
        value_size=8,
        causal=False,
        element_bytes=2,
        key_sequence=5,
    )
    assert item.forward[0].flops == 2 * 2 * 4 * 16 * 5 * (12 + 8)
    # Q K^T, dQ and dK have the width of keys; dV and dP that of values.
    assert item.input_grad[0].flops == 2 * 2 * 4 * 16 * 5 * (3 * 12 + 2 * 8)
    # q, k and v, and the log-sum-exp of every head.
    assert item.saved_bytes == 2 * 2 * 4 * (16 * 12 + 5 * 12 + 5 * 8) + 4 * 2 * 16 * 4


def test_windows_shorten_long_rows() -> None:
    config = {"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 1024}
    profile = computed(config, sequence=32_768)
    windowed, full = seconds(profile, 1), seconds(profile, 11)
    assert profile.units[11].name == "block.5.attn"
    assert full > 1.5 * windowed
    assert [seconds(profile, index) for index in range(1, 11, 2)] == [windowed] * 5
    assert any("In 5 of 6 blocks a token sees 1,024 tokens" in text for text in profile.assumptions)


def test_only_active_experts_cost_time() -> None:
    config = MixtralConfig(
        hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1
    )
    part = config.design(BATCH).parts["mlp"]
    # The router, and two of eight experts with three products.
    assert forward_flops(part) == 2 * TOKENS * 64 * 8 + 2 * TOKENS * 2 * 3 * 64 * 96
    assert part.parameters == 64 + 64 * 8 + 8 * 3 * 64 * 96
    assert part.active_parameters == 64 + 64 * 8 + 2 * 3 * 64 * 96
    # Kept: stream, norm output and its statistics, fp32 scores; for two copies of each token: input, gate and up and
    # SiLU (with the product's two inputs), product, output.
    copies = 2 * TOKENS
    kept = 2 * TOKENS * 2 * 64 + 4 * TOKENS + 4 * TOKENS * 8 + 2 * copies * (64 + 3 * 96 + 96 + 64)
    assert part.saved_bytes == kept


def test_all_experts_cost_memory_and_optimizer_steps() -> None:
    few, many = (
        computed({"model_type": "mixtral", "num_hidden_layers": 1, "num_local_experts": count}, sequence=4096)
        for count in (8, 32)
    )
    mlp = 2
    assert few.units[mlp].name == "block.0.mlp"
    assert many.units[mlp].parameter_bytes > 3.9 * few.units[mlp].parameter_bytes
    assert many.units[mlp].times[0].step_s > 3.9 * few.units[mlp].times[0].step_s
    assert many.units[mlp].times[0].forward_s < 1.1 * few.units[mlp].times[0].forward_s


@pytest.mark.parametrize(
    ("family", "total", "active"),
    [
        # Published: Mixtral 8x7B 46.7 and 12.9, DeepSeek-V3 671 and 37, gpt-oss-120b 116.8 and 5.1 (without one of the
        # two tables of 0.58) thousand million.
        ("mixtral", 46_702_792_704, 12_879_925_248),
        ("deepseek_v3", 671_026_404_352, 37_552_282_624),
        ("gpt_oss", 116_829_156_672, 5_711_982_912),
    ],
)
def test_total_and_active_parameters(family: str, total: int, active: int) -> None:
    counts = computed({"model_type": family}).parameter_counts
    assert counts is not None
    assert (counts.total, counts.active) == (total, active)


@pytest.mark.parametrize("family", [name for name in ARCHITECTURES if name not in ("vit",)])
def test_only_mixtures_of_experts_have_parameter_counts(family: str) -> None:
    has_experts = family in ("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss")
    profile = computed({"model_type": family})
    assert (profile.parameter_counts is not None) == has_experts
    assert any("Routing is balanced" in text for text in profile.assumptions) == has_experts


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_only_the_first_layer_has_no_way_back(family: str) -> None:
    profile = computed({"model_type": family}, sequence=None if family == "vit" else 64)
    without = [unit.name for unit in profile.units if unit.times[0].input_grad_s == 0]
    # The decoder's embedding adds nothing to the gradient of the encoder's output, which passes by.
    others = {"t5": ["decoder.embedding"], "whisper": ["decoder.embedding"], "clip": ["text.embedding"]}
    assert without == [profile.units[0].name, *others.get(family, [])]
    assert all(unit.sizes[0].cut_bytes > 0 for unit in profile.units[:-1])
    assert profile.units[-1].sizes[0].cut_bytes == 0
    assert all(unit.parameter_bytes > 0 for unit in profile.units)


def test_cuts_of_t5() -> None:
    design = T5Config(d_model=8, d_kv=4, num_heads=3, num_layers=2).design(BATCH)
    stream, ids, bias = 2 * TOKENS * 8, 8 * TOKENS, 2 * 3 * 16 * 16
    assert cuts(design) == {
        "encoder.embedding": stream + ids,
        "encoder.block.0.attn": stream + ids + bias,
        "encoder.block.0.mlp": stream + ids + bias,
        "encoder.block.1.attn": stream + ids,
        "encoder.block.1.mlp": stream + ids,
        "encoder.norm": stream + ids,
        "decoder.embedding": 2 * stream,
        "decoder.block.0.attn": 2 * stream + bias,
        "decoder.block.0.cross": 2 * stream + bias,
        "decoder.block.0.mlp": 2 * stream + bias,
        "decoder.block.1.attn": 2 * stream,
        "decoder.block.1.cross": 2 * stream,
        "decoder.block.1.mlp": 2 * stream,
        "head": 0,
    }
    assert design.input_bytes == 2 * ids
    assert design.tied_layers == ("encoder.embedding", "decoder.embedding", "head")


def test_the_table_of_t5_is_tied_three_times() -> None:
    profile = computed({"model_type": "t5"})
    (tie,) = profile.ties
    assert [profile.units[index].name for index in tie.units] == ["encoder.embedding", "decoder.embedding", "head"]
    assert tie.parameter_bytes == 2 * 32128 * 512


def test_cuts_of_whisper_and_clip() -> None:
    config = WhisperConfig(d_model=12, encoder_layers=1, decoder_layers=1, max_source_positions=20)
    sound, stream, ids = 2 * 2 * 20 * 12, 2 * TOKENS * 12, 8 * TOKENS
    sizes = cuts(config.design(BATCH))
    assert {size for name, size in sizes.items() if name.startswith("encoder")} == {sound + ids}
    assert {size for name, size in sizes.items() if name.startswith("decoder")} == {stream + sound}
    # Mel bins of two frames for every position.
    assert config.design(BATCH).input_bytes == 2 * 2 * 40 * 80 + ids
    sizes = cuts(ClipConfig(projection_dim=10).design(BATCH))
    assert {size for name, size in sizes.items() if name.startswith("text")} == {2 * TOKENS * 512 + 2 * 2 * 10}
    assert sizes.pop("vision.head") == 2 * 2 * 10 + ids
    assert {size for name, size in sizes.items() if name.startswith("vision")} == {2 * 2 * 50 * 768 + ids}


def test_parallel_residuals_make_one_layer_of_a_block() -> None:
    parallel = computed({"model_type": "gpt_neox", "num_hidden_layers": 2})
    assert [unit.name for unit in parallel.units] == ["embedding", "block.0", "block.1", "head"]
    sequential = computed({"model_type": "gpt_neox", "num_hidden_layers": 2, "use_parallel_residual": False})
    assert sequential.num_units == 6
    design = GptNeoxConfig(hidden_size=64, num_attention_heads=4, intermediate_size=96).design(BATCH)
    # Saved: two norms' input, which is the same stream, and outputs; q, k, v and output; up and its GELU.
    numbers = 2 * TOKENS * (2 * 64 + 2 * 64 + 4 * 64 + 2 * 96) + 2 * 8 * TOKENS + 4 * TOKENS * 4
    assert design.parts["block"].saved_bytes == numbers


def test_one_norm_for_both_halves_is_saved_once() -> None:
    config = FalconConfig(hidden_size=64, num_attention_heads=4, ffn_hidden_size=96)
    part = config.design(BATCH).parts["block"]
    # Stream, norm output; q and output of four heads, k and v of one; up and its GELU.
    numbers = 2 * TOKENS * (64 + 64 + 2 * 64 + 2 * 16 + 2 * 96) + 8 * TOKENS + 4 * TOKENS * 4
    assert part.saved_bytes == numbers


@pytest.mark.parametrize(
    ("config", "where", "what"),
    [
        ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention", "cannot be computed"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder", "cannot be computed"),
        ({"model_type": "bert", "is_decoder": 0}, "is_decoder", "cannot be computed"),
        ({"model_type": "t5", "is_encoder_decoder": False}, "is_encoder_decoder", "cannot be computed"),
        ({"model_type": "deepseek_v3", "moe_layer_freq": 2}, "moe_layer_freq", "cannot be computed"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "use_bidirectional_attention", "cannot be"),
        ({"model_type": "llama", "num_local_experts": 8}, "num_local_experts", "llama has no key num_local_experts"),
        ({"model_type": "mixtral", "n_shared_experts": 1}, "n_shared_experts", "would change the model"),
        ({"model_type": "falcon", "n_head_kv": 8}, "n_head_kv", "cannot be computed"),
        ({"model_type": "llama", "architectures": ["LlamaModel"]}, "architectures", "'LlamaModel' cannot be computed"),
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"] * 2}, "architectures", "several classes"),
        ({"model_type": "gpt2", "n_layer": 2, "num_hidden_layers": 3}, "num_hidden_layers", "differ"),
        ({"model_type": "vit", "num_labels": 3, "id2label": {"0": "a"}}, "num_labels", "id2label has 1"),
        ({"model_type": "qwen3", "num_hidden_layers": 1, "layer_types": ["linear_attention"]}, "layer_types", "linear"),
        ({"model_type": "qwen3", "layer_types": ["full_attention"]}, "layer_types", "1 entries for 32 layers"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok", "but there are 8"),
        ({"model_type": "deepseek_v3", "num_key_value_heads": 64}, "num_key_value_heads", "must equal"),
        ({"model_type": "t5", "feed_forward_proj": "double-gelu"}, "feed_forward_proj", "gated-gelu"),
        ({"model_type": "falcon", "num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn", "2 norms need"),
        (
            {"model_type": "falcon", "new_decoder_architecture": True, "parallel_attn": False},
            "parallel_attn",
            "must be true",
        ),
        (
            {"model_type": "clip", "vision_config": {"patch_size": 300}},
            "vision_config.patch_size",
            "larger than image_size",
        ),
        ({"model_type": "clip", "text_config": {"hidden_size": 0}}, "text_config.hidden_size", ">= 1"),
    ],
)
def test_values_that_are_not_understood_are_refused_by_name(config: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        computed(config)
    assert what in caught.value.what
    assert caught.value.where == f"config, at $.{where}"


def test_an_unsupported_model_type_lists_the_supported_ones() -> None:
    with pytest.raises(InputError) as caught:
        computed({"model_type": "mamba"})
    assert all(family in caught.value.what for family in ARCHITECTURES)
    assert "penstock profile script.py:make_model" in caught.value.hint
    with pytest.raises(InputError) as caught:
        computed({"model_type": "gemma3", "text_config": {}})
    assert "gemma3_text" in caught.value.hint


def test_keys_of_other_architectures_without_a_value_are_ignored() -> None:
    plain = computed({"model_type": "llama"})
    assert computed({"model_type": "llama", "num_experts": None, "n_shared_experts": 0, "pruned_heads": {}}) == plain


def test_quantization_is_an_assumption() -> None:
    plain = computed({"model_type": "gpt_oss"})
    quantized = computed({"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}})
    assert quantized.units == plain.units
    assert any("quantization_config is ignored" in text for text in quantized.assumptions)
    assert not any("quantization_config" in text for text in plain.assumptions)


def test_learned_positions_limit_the_rows() -> None:
    for family, longest in (("opt", 2048), ("whisper", 448), ("clip", 77)):
        with pytest.raises(InputError, match=f"exceeds the {longest:,} learned positions"):
            computed({"model_type": family}, sequence=longest + 1)
    assert any("beyond the configured 512" in text for text in computed({"model_type": "t5"}, sequence=600).assumptions)
