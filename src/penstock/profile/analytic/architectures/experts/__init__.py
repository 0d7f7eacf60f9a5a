"""Decoder-only language models with mixtures of experts."""

from penstock.profile.analytic.architectures.experts.deepseek_v3 import DeepseekV3Config
from penstock.profile.analytic.architectures.experts.gpt_oss import GptOssConfig
from penstock.profile.analytic.architectures.experts.mixtral import MixtralConfig
from penstock.profile.analytic.architectures.experts.qwen3_moe import Qwen3MoeConfig

__all__ = ["DeepseekV3Config", "GptOssConfig", "MixtralConfig", "Qwen3MoeConfig"]
