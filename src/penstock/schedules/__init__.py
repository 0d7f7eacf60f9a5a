"""Schedules: plan -> program. One file a method."""
