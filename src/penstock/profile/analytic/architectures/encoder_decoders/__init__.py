"""Models with an encoder and a decoder."""

from penstock.profile.analytic.architectures.encoder_decoders.t5 import T5Config
from penstock.profile.analytic.architectures.encoder_decoders.whisper import WhisperConfig

__all__ = ["T5Config", "WhisperConfig"]
