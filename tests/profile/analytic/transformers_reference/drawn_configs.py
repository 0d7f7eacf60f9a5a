"""Small configurations of every architecture, drawn by hypothesis, with the keys that change the model."""

from typing import Any

from hypothesis import strategies as st

FEW = st.integers(1, 3)
FLAG = st.booleans()
WIDTH = st.sampled_from([8, 16, 24])
INNER = st.integers(5, 40)
WORDS = st.integers(10, 60)
HEADS = st.sampled_from([1, 2, 4])
LABELS = st.integers(2, 5)


@st.composite
def grouped(draw: st.DrawFn, *, head_dim: bool = True) -> dict[str, Any]:
    """The keys of Llama and its successors: rotary embeddings need even heads."""
    heads = draw(HEADS)
    config = {
        "vocab_size": draw(WORDS),
        "hidden_size": heads * 2 * draw(FEW),
        "intermediate_size": draw(INNER),
        "num_hidden_layers": draw(st.integers(1, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([count for count in (1, 2, 4) if heads % count == 0])),
        "tie_word_embeddings": draw(FLAG),
        "max_position_embeddings": 64,
        "num_labels": draw(LABELS),
        "pad_token_id": 0,
    }
    if head_dim and draw(FLAG):
        config["head_dim"] = draw(st.sampled_from([4, 6, 10]))
    return config


def windows(config: dict[str, Any], draw: st.DrawFn) -> dict[str, Any]:
    """The keys of sliding windows."""
    keys: dict[str, Any] = {"sliding_window": draw(st.sampled_from([4, 16]))}
    if draw(FLAG):
        types = st.sampled_from(["full_attention", "sliding_attention"])
        layers = config["num_hidden_layers"]
        keys["layer_types"] = draw(st.lists(types, min_size=layers, max_size=layers))
    return keys


@st.composite
def llama(draw: st.DrawFn) -> dict[str, Any]:
    return {**draw(grouped()), "attention_bias": draw(FLAG), "mlp_bias": draw(FLAG)}


@st.composite
def mistral(draw: st.DrawFn) -> dict[str, Any]:
    return {**draw(grouped()), "sliding_window": draw(st.sampled_from([None, 4]))}


@st.composite
def qwen(draw: st.DrawFn) -> dict[str, Any]:
    config = draw(grouped())
    return {**config, **windows(config, draw), "use_sliding_window": draw(FLAG), "max_window_layers": draw(FEW)}


@st.composite
def qwen3(draw: st.DrawFn) -> dict[str, Any]:
    return {**draw(qwen()), "attention_bias": draw(FLAG)}


@st.composite
def gemma(draw: st.DrawFn) -> dict[str, Any]:
    config = draw(grouped())
    return {**config, **windows(config, draw), "attention_bias": draw(FLAG)}


@st.composite
def phi3(draw: st.DrawFn) -> dict[str, Any]:
    return {**draw(grouped()), "sliding_window": draw(st.sampled_from([None, 4]))}


@st.composite
def mixtral(draw: st.DrawFn) -> dict[str, Any]:
    experts = draw(st.integers(2, 5))
    count = draw(st.sampled_from(["num_local_experts", "num_experts"]))
    return {**draw(grouped()), count: experts, "num_experts_per_tok": draw(st.integers(1, experts))}


@st.composite
def qwen3_moe(draw: st.DrawFn) -> dict[str, Any]:
    experts = draw(st.integers(2, 5))
    return {
        **draw(grouped()),
        "num_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "moe_intermediate_size": draw(INNER),
        "attention_bias": draw(FLAG),
        "decoder_sparse_step": draw(FEW),
        "mlp_only_layers": draw(st.lists(st.integers(0, 3), max_size=2)),
    }


@st.composite
def deepseek_v3(draw: st.DrawFn) -> dict[str, Any]:
    experts = draw(st.sampled_from([4, 8]))
    config = draw(grouped(head_dim=False))
    return {
        **config,
        "num_key_value_heads": config["num_attention_heads"],
        "n_routed_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, 4)),
        "n_shared_experts": draw(FEW),
        "n_group": 2,
        "topk_group": 2,
        "moe_intermediate_size": draw(INNER),
        "first_k_dense_replace": draw(st.integers(0, 3)),
        "q_lora_rank": draw(st.none() | INNER),
        "kv_lora_rank": draw(INNER),
        "qk_rope_head_dim": draw(st.sampled_from([2, 4])),
        "qk_nope_head_dim": draw(st.sampled_from([3, 8])),
        "v_head_dim": draw(st.sampled_from([4, 5])),
        "attention_bias": draw(FLAG),
    }


@st.composite
def gpt_oss(draw: st.DrawFn) -> dict[str, Any]:
    config, experts = draw(grouped()), draw(st.integers(2, 5))
    return {
        **config,
        **windows(config, draw),
        "head_dim": config.get("head_dim", 4),
        "num_local_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "attention_bias": draw(FLAG),
    }


@st.composite
def gpt2(draw: st.DrawFn) -> dict[str, Any]:
    hidden = draw(st.sampled_from(["n_embd", "hidden_size"]))
    layers = draw(st.sampled_from(["n_layer", "num_hidden_layers"]))
    return {
        "vocab_size": draw(WORDS),
        "n_positions": 64,
        hidden: draw(WIDTH),
        layers: draw(FEW),
        "n_head": draw(HEADS),
        "n_inner": draw(st.none() | INNER),
        "tie_word_embeddings": draw(FLAG),
        "num_labels": draw(LABELS),
        "pad_token_id": 0,
    }


@st.composite
def gpt_neox(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "vocab_size": draw(WORDS),
        "hidden_size": draw(st.sampled_from([32, 64])),
        "num_hidden_layers": draw(FEW),
        "num_attention_heads": draw(HEADS),
        "intermediate_size": draw(INNER),
        "max_position_embeddings": 64,
        "tie_word_embeddings": draw(FLAG),
        "use_parallel_residual": draw(FLAG),
        "attention_bias": draw(FLAG),
        "num_labels": draw(LABELS),
        "pad_token_id": 0,
    }


@st.composite
def opt(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "vocab_size": draw(WORDS),
        "hidden_size": draw(WIDTH),
        "num_hidden_layers": draw(FEW),
        "ffn_dim": draw(INNER),
        "num_attention_heads": draw(HEADS),
        "max_position_embeddings": draw(st.integers(20, 64)),
        "do_layer_norm_before": draw(FLAG),
        "word_embed_proj_dim": draw(st.none() | st.sampled_from([4, 8])),
        "enable_bias": draw(FLAG),
        "layer_norm_elementwise_affine": draw(FLAG),
        "_remove_final_layer_norm": draw(FLAG),
        "tie_word_embeddings": draw(FLAG),
        "num_labels": draw(LABELS),
    }


@st.composite
def bloom(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "vocab_size": draw(WORDS),
        draw(st.sampled_from(["hidden_size", "n_embed"])): draw(WIDTH),
        draw(st.sampled_from(["n_layer", "num_hidden_layers"])): draw(FEW),
        "n_head": draw(HEADS),
        "tie_word_embeddings": draw(FLAG),
        "num_labels": draw(LABELS),
        "pad_token_id": 0,
    }


@st.composite
def falcon(draw: st.DrawFn) -> dict[str, Any]:
    heads, is_new = draw(st.sampled_from([2, 4])), draw(FLAG)
    config = {
        "vocab_size": draw(WORDS),
        "hidden_size": heads * 2 * draw(FEW),
        "num_hidden_layers": draw(FEW),
        "num_attention_heads": heads,
        "alibi": draw(FLAG),
        "new_decoder_architecture": is_new,
        "multi_query": draw(FLAG),
        "parallel_attn": is_new or draw(FLAG),
        "bias": draw(FLAG),
        "ffn_hidden_size": draw(st.none() | INNER),
        "tie_word_embeddings": draw(FLAG),
        "num_labels": draw(LABELS),
        "pad_token_id": 0,
    }
    if is_new:
        config["num_kv_heads"] = draw(st.sampled_from([None, 1, 2]))
        config["num_ln_in_parallel_attn"] = draw(st.sampled_from([None, 1, 2]))
    return config


@st.composite
def bert(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "vocab_size": draw(WORDS),
        "hidden_size": draw(WIDTH),
        "num_hidden_layers": draw(FEW),
        "num_attention_heads": draw(HEADS),
        "intermediate_size": draw(INNER),
        "max_position_embeddings": 64,
        "type_vocab_size": draw(FEW),
        "tie_word_embeddings": draw(FLAG),
        "num_labels": draw(LABELS),
    }


@st.composite
def vit(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "hidden_size": draw(WIDTH),
        "num_hidden_layers": draw(FEW),
        "num_attention_heads": draw(HEADS),
        "intermediate_size": draw(INNER),
        "image_size": draw(st.integers(8, 20)),
        "patch_size": draw(st.integers(2, 8)),
        "num_channels": draw(FEW),
        "qkv_bias": draw(FLAG),
        "num_labels": draw(LABELS),
    }


@st.composite
def clip(draw: st.DrawFn) -> dict[str, Any]:
    image = draw(vit())
    text = draw(bert())
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return {
        "projection_dim": draw(INNER),
        "text_config": {
            **{key: text[key] for key in (*keys, "vocab_size")},
            "max_position_embeddings": draw(st.integers(20, 40)),
            # The last id marks the end of a text.
            "eos_token_id": text["vocab_size"] - 1,
            "bos_token_id": 0,
        },
        "vision_config": {key: image[key] for key in (*keys, "image_size", "patch_size", "num_channels")},
    }


@st.composite
def t5(draw: st.DrawFn) -> dict[str, Any]:
    config = {
        "vocab_size": draw(WORDS),
        "d_model": draw(WIDTH),
        "d_kv": draw(st.integers(2, 9)),
        "d_ff": draw(INNER),
        "num_layers": draw(FEW),
        "num_decoder_layers": draw(st.none() | FEW),
        "num_heads": draw(HEADS),
        "relative_attention_num_buckets": draw(st.sampled_from([8, 32])),
        "feed_forward_proj": draw(st.sampled_from(["relu", "gated-gelu", "gated-silu"])),
        "decoder_start_token_id": 0,
    }
    if draw(FLAG):
        config["tie_word_embeddings"] = draw(FLAG)
    if draw(FLAG):
        config["is_gated_act"] = draw(FLAG)
    return config


@st.composite
def whisper(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "vocab_size": draw(WORDS),
        "num_mel_bins": draw(FEW),
        "encoder_layers": draw(FEW),
        "decoder_layers": draw(FEW),
        "encoder_attention_heads": draw(HEADS),
        "decoder_attention_heads": draw(HEADS),
        "encoder_ffn_dim": draw(INNER),
        "decoder_ffn_dim": draw(INNER),
        "d_model": draw(WIDTH),
        "max_source_positions": draw(st.integers(6, 20)),
        "max_target_positions": draw(st.integers(16, 20)),
        "tie_word_embeddings": draw(FLAG),
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
        "begin_suppress_tokens": None,
    }


DRAWN: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "gpt2": gpt2(),
    "llama": llama(),
    "mistral": mistral(),
    "qwen2": qwen(),
    "qwen3": qwen3(),
    "gemma2": gemma(),
    "gemma3_text": gemma(),
    "phi3": phi3(),
    "gpt_neox": gpt_neox(),
    "opt": opt(),
    "bloom": bloom(),
    "falcon": falcon(),
    "mixtral": mixtral(),
    "qwen3_moe": qwen3_moe(),
    "deepseek_v3": deepseek_v3(),
    "gpt_oss": gpt_oss(),
    "bert": bert(),
    "vit": vit(),
    "clip": clip(),
    "t5": t5(),
    "whisper": whisper(),
}
