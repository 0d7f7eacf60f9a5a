"""Classes of transformers, with small random weights."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from benchmarks.models import batches
from benchmarks.models.small_configs import WIDTH, WORDS, small_config

Batch = Callable[[Any], dict[str, Tensor]]


class Kind(NamedTuple):
    """Classes that take the same batches, each with values of its configuration other than `SIZES`."""

    batch: Batch
    classes: Mapping[str, Mapping[str, Any]]


_WAVES = {
    "conv_dim": (16, 16),
    "conv_kernel": (10, 4),
    "conv_stride": (5, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "ctc_loss_reduction": "mean",
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
    "classifier_proj_size": WIDTH,
}
_SWIN = {
    "embed_dim": 8,
    "depths": [1, 1, 2],
    "num_heads": [2, 2, 4],
    "image_size": 32,
    "patch_size": 2,
    "window_size": 4,
}
_STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}
_LLAVA = {
    "image_token_index": 3,
    "vision_feature_layer": -1,
    "text_config": {"vocab_size": WORDS},
    "vision_config": {"projection_dim": WIDTH},
}
_IMAGE_TOKEN = {"image_token_id": 3}
_QWEN = {
    "image_token_id": 3,
    "vision_config": {"out_hidden_size": WIDTH, "hidden_size": WIDTH},
    "text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}},
}
_SERIES = {"context_length": 12, "prediction_length": 4, "num_input_channels": 3, "patch_length": 4, "patch_stride": 4}

KINDS: dict[str, Kind] = {
    "text decoder": Kind(
        batches.language,
        {
            "LlamaForCausalLM": {},
            "MistralForCausalLM": {},
            "Qwen2ForCausalLM": {},
            "Qwen3ForCausalLM": {},
            "Gemma2ForCausalLM": {},
            "Gemma3ForCausalLM": {},
            "Phi3ForCausalLM": {},
            "GPT2LMHeadModel": {},
            "GPTNeoXForCausalLM": {},
            "GPTJForCausalLM": {},
            "OPTForCausalLM": {},
            "BloomForCausalLM": {},
            "FalconForCausalLM": {},
            "MptForCausalLM": {},
            "Olmo2ForCausalLM": {},
            "StableLmForCausalLM": {},
            "CohereForCausalLM": {},
            "XLNetLMHeadModel": {},
        },
    ),
    "encoder": Kind(
        batches.language,
        {
            "BertForMaskedLM": {},
            "RobertaForMaskedLM": {"max_position_embeddings": 80},
            "DistilBertForMaskedLM": {},
            "AlbertForMaskedLM": {"embedding_size": 16},
            "ElectraForMaskedLM": {},
            "DebertaV2ForMaskedLM": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
            "ModernBertForMaskedLM": {},
            "FNetForMaskedLM": {},
            "SqueezeBertForMaskedLM": {"embedding_size": WIDTH},
        },
    ),
    "classifier": Kind(
        batches.text_classes, {"XLMRobertaForSequenceClassification": {"max_position_embeddings": 80}}
    ),
    "encoder-decoder": Kind(
        batches.translation,
        {
            "T5ForConditionalGeneration": {"decoder_start_token_id": 1},
            "MT5ForConditionalGeneration": {},
            "BartForConditionalGeneration": {},
            "MarianMTModel": {},
            "PegasusForConditionalGeneration": {},
            "BlenderbotForConditionalGeneration": {},
            "M2M100ForConditionalGeneration": {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
        },
    ),
    "mixture of experts": Kind(
        batches.language,
        {
            "MixtralForCausalLM": {},
            "Qwen2MoeForCausalLM": {},
            "OlmoeForCausalLM": {},
            "DeepseekV3ForCausalLM": {"head_dim": 8, "num_key_value_heads": 4},
            "GptOssForCausalLM": {},
            "GraniteMoeForCausalLM": {},
        },
    ),
    "state space": Kind(
        batches.language,
        {
            "MambaForCausalLM": {},
            "Mamba2ForCausalLM": {"num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8},
            "FalconMambaForCausalLM": {},
            "RwkvForCausalLM": {"attention_hidden_size": WIDTH, "context_length": 64},
            "JambaForCausalLM": {"attn_layer_offset": 1, "attn_layer_period": 2, "use_mamba_kernels": False},
        },
    ),
    "vision": Kind(
        batches.images,
        {
            "ViTForImageClassification": {},
            "DeiTForImageClassification": {},
            "BeitForImageClassification": {},
            "Dinov2ForImageClassification": {},
            "SwinForImageClassification": _SWIN,
            "ConvNextForImageClassification": {**_STAGES, "image_size": 64},
            "ResNetForImageClassification": {**_STAGES, "embedding_size": 8, "layer_type": "basic"},
            "SegformerForImageClassification": {"hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16},
            "SiglipForImageClassification": {},
        },
    ),
    "audio": Kind(
        batches.speech,
        {"Wav2Vec2ForCTC": {**_WAVES, "feat_extract_norm": "layer"}, "HubertForCTC": _WAVES},
    ),
    "speech to text": Kind(
        batches.spectra, {"WhisperForConditionalGeneration": {"num_mel_bins": 8, "max_source_positions": 20}}
    ),
    "multimodal": Kind(
        batches.pictures_and_text,
        {
            "LlavaForConditionalGeneration": _LLAVA,
            "PaliGemmaForConditionalGeneration": _IMAGE_TOKEN,
        },
    ),
    "packed patches": Kind(
        batches.patches_and_text,
        {
            "Qwen2VLForConditionalGeneration": _QWEN,
            "Qwen2_5_VLForConditionalGeneration": _QWEN,
            "Qwen3VLForConditionalGeneration": {"image_token_id": 3, "vision_config": {"out_hidden_size": WIDTH}},
        },
    ),
    "time series": Kind(
        batches.series, {"PatchTSTForPrediction": _SERIES, "PatchTSMixerForPrediction": _SERIES}
    ),
}  # fmt: skip


def family_of(name: str) -> Kind:
    """The kind of a class in the table."""
    return next(kind for kind in KINDS.values() if name in kind.classes)


def make(name: str, batch: Batch | None = None, **own: Any) -> tuple[nn.Module, dict[str, Tensor]]:
    """Make a model of this class and a batch with its labels.

    Args:
        name: The class. Without a batch, one of the table.
        batch: Makes the batch of a configuration.
        **own: Values of the configuration.
    """
    import torch
    import transformers

    if batch is None:
        batch, own = family_of(name).batch, {**family_of(name).classes[name], **own}
    model_class = getattr(transformers, name)
    torch.manual_seed(0)
    model = model_class(small_config(model_class.config_class, **own))
    return model.train(), batch(model.config)
