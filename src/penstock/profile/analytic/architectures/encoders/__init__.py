"""Encoders of text and images."""

from penstock.profile.analytic.architectures.encoders.bert import BertConfig
from penstock.profile.analytic.architectures.encoders.clip import ClipConfig
from penstock.profile.analytic.architectures.encoders.vit import VitConfig

__all__ = ["BertConfig", "ClipConfig", "VitConfig"]
