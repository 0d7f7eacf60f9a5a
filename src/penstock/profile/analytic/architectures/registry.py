"""The table of architectures: one configuration class for each value of "model_type"."""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.profile.analytic.architectures.decoders import (
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    Gpt2Config,
    GptNeoxConfig,
    LlamaConfig,
    MistralConfig,
    OptConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)
from penstock.profile.analytic.architectures.encoder_decoders import T5Config, WhisperConfig
from penstock.profile.analytic.architectures.encoders import BertConfig, ClipConfig, VitConfig
from penstock.profile.analytic.architectures.experts import (
    DeepseekV3Config,
    GptOssConfig,
    MixtralConfig,
    Qwen3MoeConfig,
)
from penstock.profile.analytic.architectures.model_config import ModelConfig

ARCHITECTURES: Mapping[str, type[ModelConfig]] = MappingProxyType(
    {
        "gpt2": Gpt2Config,
        "llama": LlamaConfig,
        "mistral": MistralConfig,
        "qwen2": Qwen2Config,
        "qwen3": Qwen3Config,
        "gemma2": Gemma2Config,
        "gemma3_text": Gemma3TextConfig,
        "phi3": Phi3Config,
        "gpt_neox": GptNeoxConfig,
        "opt": OptConfig,
        "bloom": BloomConfig,
        "falcon": FalconConfig,
        "mixtral": MixtralConfig,
        "qwen3_moe": Qwen3MoeConfig,
        "deepseek_v3": DeepseekV3Config,
        "gpt_oss": GptOssConfig,
        "bert": BertConfig,
        "vit": VitConfig,
        "clip": ClipConfig,
        "t5": T5Config,
        "whisper": WhisperConfig,
    }
)
