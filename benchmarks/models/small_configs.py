"""Small random configurations of transformers models, of any class. Nothing is downloaded."""

import re
from typing import Any

WIDTH, INNER, LAYERS, HEADS, WORDS, POSITIONS = 32, 48, 4, 4, 96, 64
IMAGE, PATCH = 16, 8

SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim", "embedding_size"), WIDTH),
    **dict.fromkeys(("hidden_sizes", "embed_dim", "attention_hidden_size", "projection_dim"), WIDTH),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "ffn_hidden_size", "hidden_dim", "mlp_dim"), INNER),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "n_inner", "d_inner"), INNER),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"), LAYERS),
    **dict.fromkeys(("decoder_layers", "encoder_layers", "num_decoder_layers", "num_encoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), HEADS),
    **dict.fromkeys(
        ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_source_positions"), POSITIONS
    ),
    **dict.fromkeys(("max_target_positions",), POSITIONS),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "sliding_window", "moe_intermediate_size"), 16),
    **dict.fromkeys(("shared_expert_intermediate_size", "head_dim", "v_head_dim", "d_kv"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "rotary_dim", "state_size", "time_step_rank"), 8),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "n_groups"), 8),
    "vocab_size": WORDS,
    "type_vocab_size": 2,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "qk_head_dim": 16,
    "image_size": IMAGE,
    "patch_size": PATCH,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
"""The sizes that a configuration may have, by the names of its fields."""


def small_config(config_class: Any, **own: Any) -> Any:
    """Make a configuration of this class with small sizes, and these own values.

    A nested configuration is small, too; its own values are a dict.
    """
    default = config_class()
    values = {
        name: size
        for name, size in SIZES.items()
        if not isinstance(getattr(config_class, name, None), property)
        and type(getattr(default, name, None)) is type(size)
    }
    kinds = getattr(default, "layer_types", None)
    if isinstance(kinds, list) and len(kinds) > LAYERS:
        values["layer_types"] = (list(dict.fromkeys(kinds)) * LAYERS)[:LAYERS]
    for name in getattr(config_class, "sub_configs", {}):
        nested_default = getattr(default, name, None)
        if nested_default is not None:
            nested_class = type(nested_default)
            values[name] = small_config(nested_class, **own.get(name, {})).to_dict()
    values |= {name: value for name, value in own.items() if name not in getattr(config_class, "sub_configs", {})}
    while True:
        try:
            return config_class(**values)
        except AttributeError as error:  # a field that follows from others
            match = re.search(r"property '(\w+)' of", str(error))
            if match is None or match[1] not in values:
                raise
            del values[match[1]]
