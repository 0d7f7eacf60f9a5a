"""Showing plans and timelines to people."""
