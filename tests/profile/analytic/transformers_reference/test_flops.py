"""Operations of matrix products against torch's own counter, on real models that run."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from penstock.profile.analytic.architectures import ARCHITECTURES
from penstock.profile.analytic.configs import config_from_mapping
from penstock.profile.analytic.model_parts import Batch
from penstock.profile.recipe import Recipe
from tests.profile.analytic.transformers_reference.reference import class_of, library, real_config

ROWS, SEQUENCE = 2, 24
GROUPED = {
    "vocab_size": 80,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
ENCODER = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
IDS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0)
MLA = {
    **GROUPED,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_group": 2,
    "topk_group": 2,
    "moe_intermediate_size": 40,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 20,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
}
FALCON = {
    "vocab_size": 80,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "pad_token_id": 0,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"vocab_size": 80, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "pad_token_id": 0}),
    "llama": ("llama", GROUPED),
    "llama, row classes": ("llama", {**GROUPED, "architectures": ["LlamaForSequenceClassification"]}),
    "mistral": ("mistral", {**GROUPED, "head_dim": 20, "sliding_window": 40}),
    "qwen2": ("qwen2", GROUPED),
    "qwen3": ("qwen3", {**GROUPED, "head_dim": 24}),
    "gemma2": ("gemma2", {**GROUPED, "head_dim": 24}),
    "gemma3_text": ("gemma3_text", {**GROUPED, "head_dim": 24}),
    "phi3": ("phi3", GROUPED),
    "gpt_neox": ("gpt_neox", {**ENCODER, "vocab_size": 80, "pad_token_id": 0}),
    "gpt_neox, sequential": ("gpt_neox", {**ENCODER, "vocab_size": 80, "use_parallel_residual": False}),
    "opt": ("opt", {**ENCODER, "vocab_size": 80, "ffn_dim": 96, "max_position_embeddings": 64}),
    "opt, narrow": ("opt", {**ENCODER, "vocab_size": 80, "ffn_dim": 96, "word_embed_proj_dim": 24}),
    "bloom": ("bloom", {"vocab_size": 80, "hidden_size": 64, "n_layer": 2, "n_head": 4, "pad_token_id": 0}),
    "falcon": ("falcon", FALCON),
    "falcon, new": ("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, sequential": ("falcon", {**FALCON, "parallel_attn": False, "multi_query": False, "alibi": True}),
    "mixtral": ("mixtral", {**GROUPED, "num_local_experts": 6, "num_experts_per_tok": 2}),
    "qwen3_moe": (
        "qwen3_moe",
        {**GROUPED, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "mlp_only_layers": [1]},
    ),
    "deepseek_v3": ("deepseek_v3", {**MLA, "q_lora_rank": 36}),
    "deepseek_v3, direct queries": ("deepseek_v3", {**MLA, "q_lora_rank": None, "n_shared_experts": 2}),
    "gpt_oss": ("gpt_oss", {**GROUPED, "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2}),
    "bert": ("bert", {**ENCODER, "vocab_size": 80, "max_position_embeddings": 64}),
    "bert, masked words": ("bert", {**ENCODER, "vocab_size": 80, "architectures": ["BertForMaskedLM"]}),
    "vit": ("vit", {**ENCODER, "image_size": 24, "patch_size": 6}),
    "clip": (
        "clip",
        {
            "projection_dim": 32,
            "text_config": {**ENCODER, "vocab_size": 80, "eos_token_id": 79, "bos_token_id": 0},
            "vision_config": {**ENCODER, "image_size": 24, "patch_size": 6},
        },
    ),
    "t5": ("t5", {"vocab_size": 80, "d_model": 64, "d_kv": 20, "d_ff": 96, "num_layers": 3, "num_heads": 4, **IDS}),
    "t5, gated": (
        "t5",
        {"vocab_size": 80, "d_model": 64, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
        | {"feed_forward_proj": "gated-gelu", **IDS},
    ),
    "whisper": (
        "whisper",
        {"vocab_size": 80, "d_model": 64, "num_mel_bins": 12, "encoder_layers": 2, "decoder_layers": 3}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 96, "decoder_ffn_dim": 80}
        | {"max_source_positions": 32, "max_target_positions": 24, "begin_suppress_tokens": None, **IDS},
    ),
}


def test_every_architecture_has_a_case() -> None:
    assert {family for family, _ in CASES.values()} == set(ARCHITECTURES)


@pytest.mark.parametrize("case", CASES)
def test_forward_and_backward(case: str) -> None:
    family, config = CASES[case]
    forward, backward = counted(family, config)
    our_forward, our_backward = computed(family, config)
    assert (our_forward, our_backward) == (forward, backward)


def counted(family: str, config: dict[str, Any]) -> tuple[int, int]:
    """Operations of the real model, forward and backward, with attention as plain products."""
    torch.manual_seed(0)
    real = real_config(family, config)
    model = getattr(library(), class_of(family, config))._from_config(
        real, attn_implementation="eager", experts_implementation="eager"
    )
    model.train()
    batch = inputs(family, config, real)
    with FlopCounterMode(display=False) as counter:
        loss = model(**batch).loss
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    return forward, counter.get_total_flops()


def inputs(family: str, config: dict[str, Any], real: Any) -> dict[str, Any]:
    ids = torch.randint(1, 79, (ROWS, SEQUENCE))
    if family == "vit":
        return {"pixel_values": torch.randn(ROWS, 3, 24, 24), "labels": torch.zeros(ROWS, dtype=torch.long)}
    if family == "clip":
        return {"input_ids": ids, "pixel_values": torch.randn(ROWS, 3, 24, 24), "return_loss": True}
    if family == "whisper":
        return {"input_features": torch.randn(ROWS, 12, 64), "labels": ids}
    if family == "bert" and "architectures" not in config:
        return {"input_ids": ids, "labels": ids, "next_sentence_label": torch.zeros(ROWS, dtype=torch.long)}
    is_classifier = class_of(family, config).endswith("ForSequenceClassification")
    return {"input_ids": ids, "labels": torch.zeros(ROWS, dtype=torch.long) if is_classifier else ids}


def computed(family: str, config: dict[str, Any]) -> tuple[int, int]:
    """Operations of the design, forward and backward, for attention as plain products.

    Plain products compute all scores, also those that the causal mask hides, and the backward does not compute the
    scores again: it has four products, not five.
    """
    parsed = config_from_mapping({**config, "model_type": family}, where="test").config
    sequence = parsed.longest if parsed.TAKES_IMAGES else SEQUENCE
    design = parsed.design(Batch(micro_batch_size=ROWS, sequence=sequence, recipe=Recipe(precision="fp32")))
    forward = backward = 0
    for layer in design.chain:
        part = design.parts[layer.part]
        is_full = layer.name.startswith(("encoder.", "vision.")) or ".cross" in layer.name or family in ("bert", "vit")
        for operation in part.operations:
            flops = sum(kernel.flops for kernel in operation.forward)
            if operation.name == "attention":
                flops *= 1 if is_full else 2
                backward += 2 * flops
            else:
                backward += sum(kernel.flops for kernel in operation.input_grad + operation.weight_grad)
            forward += flops
    return forward, backward
