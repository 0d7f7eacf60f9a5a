"""Schedules: from the costs of a plan to the order of its compute actions."""

from penstock.schedules.registry import MAX_JOBS, SCHEDULES, find_schedule, schedule

__all__ = ["MAX_JOBS", "SCHEDULES", "find_schedule", "schedule"]
