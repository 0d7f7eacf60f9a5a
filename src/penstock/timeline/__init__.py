"""Timelines: when every action ran, simulated or measured."""

from penstock.timeline.blocking import blocked_at
from penstock.timeline.build import build_timeline
from penstock.timeline.causes import compute_before
from penstock.timeline.files import FORMAT, encode_timeline, load_timeline, save_timeline
from penstock.timeline.summary import Wait, bubble_fraction, critical_path, device_uses, rows_per_second, waits
from penstock.timeline.transfers import awaited_transfers, transfer_seconds
from penstock.timeline.types import Timeline

__all__ = [
    "FORMAT",
    "Timeline",
    "Wait",
    "awaited_transfers",
    "blocked_at",
    "bubble_fraction",
    "build_timeline",
    "compute_before",
    "critical_path",
    "device_uses",
    "encode_timeline",
    "load_timeline",
    "rows_per_second",
    "save_timeline",
    "transfer_seconds",
    "waits",
]
