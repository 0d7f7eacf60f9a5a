"""The engines, one module each: what each can run, and the files for it."""

from penstock.export.engines.automodel import AUTOMODEL
from penstock.export.engines.deepspeed import DEEPSPEED
from penstock.export.engines.flagscale import FLAGSCALE
from penstock.export.engines.megatron import MEGATRON
from penstock.export.engines.torch import TORCH
from penstock.export.engines.torchtitan import TORCHTITAN

__all__ = ["AUTOMODEL", "DEEPSPEED", "FLAGSCALE", "MEGATRON", "TORCH", "TORCHTITAN"]
