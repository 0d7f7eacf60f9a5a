"""Timelines and tables in the terminal."""

from penstock.report.terminal.render import TimelinePicture, device_table, waits_table

__all__ = ["TimelinePicture", "device_table", "waits_table"]
