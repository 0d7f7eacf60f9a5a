"""Lowering: adds sends, receives, reductions and optimizer steps to a compute program."""

from penstock.program.lowering.lowering import lower

__all__ = ["lower"]
