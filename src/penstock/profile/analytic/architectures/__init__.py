"""The supported architectures: the keys of their config.json, and the layers that follow from them."""

from penstock.profile.analytic.architectures.model_config import FUSED_ATTENTION, ConfigError, ModelConfig
from penstock.profile.analytic.architectures.registry import ARCHITECTURES

__all__ = ["ARCHITECTURES", "FUSED_ATTENTION", "ConfigError", "ModelConfig"]
