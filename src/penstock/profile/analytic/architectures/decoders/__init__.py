"""Decoder-only language models."""

from penstock.profile.analytic.architectures.decoders.bloom import BloomConfig
from penstock.profile.analytic.architectures.decoders.falcon import FalconConfig
from penstock.profile.analytic.architectures.decoders.gemma2 import Gemma2Config
from penstock.profile.analytic.architectures.decoders.gemma3 import Gemma3TextConfig
from penstock.profile.analytic.architectures.decoders.gpt2 import Gpt2Config
from penstock.profile.analytic.architectures.decoders.gpt_neox import GptNeoxConfig
from penstock.profile.analytic.architectures.decoders.llama import LlamaConfig
from penstock.profile.analytic.architectures.decoders.llama_like import LlamaLike, llama_like_block, llama_like_design
from penstock.profile.analytic.architectures.decoders.mistral import MistralConfig
from penstock.profile.analytic.architectures.decoders.opt import OptConfig
from penstock.profile.analytic.architectures.decoders.phi3 import Phi3Config
from penstock.profile.analytic.architectures.decoders.qwen2 import Qwen2Config
from penstock.profile.analytic.architectures.decoders.qwen3 import Qwen3Config

__all__ = [
    "BloomConfig",
    "FalconConfig",
    "Gemma2Config",
    "Gemma3TextConfig",
    "Gpt2Config",
    "GptNeoxConfig",
    "LlamaConfig",
    "LlamaLike",
    "MistralConfig",
    "OptConfig",
    "Phi3Config",
    "Qwen2Config",
    "Qwen3Config",
    "llama_like_block",
    "llama_like_design",
]
