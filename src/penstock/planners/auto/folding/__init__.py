"""Symmetric clusters by classes of equal devices, and starts for them."""

from penstock.planners.auto.folding.fold import Fold, folds, is_symmetric
from penstock.planners.auto.folding.memory_stages import memory_stages

__all__ = ["Fold", "folds", "is_symmetric", "memory_stages"]
