"""Readers of other tools' profile formats: PipeDream and Piper."""

from penstock.profile.readers.pipedream import parse_pipedream
from penstock.profile.readers.piper import parse_piper

__all__ = ["parse_pipedream", "parse_piper"]
