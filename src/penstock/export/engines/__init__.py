"""The engines, one module each: what each can run, and the files for it."""

from penstock.export.engines.deepspeed import DEEPSPEED
from penstock.export.engines.megatron import MEGATRON
from penstock.export.engines.torch import TORCH

__all__ = ["DEEPSPEED", "MEGATRON", "TORCH"]
