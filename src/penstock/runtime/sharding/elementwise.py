"""Optimizers that step every element of a parameter by itself: only these can be sharded."""

import torch

from penstock.errors import InputError

ELEMENTWISE = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
"""Classes of `torch.optim`."""


def require_elementwise(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer that may use more than one element of a parameter at a time, as by its norm.

    An optimizer of another library says that it is elementwise with an attribute `is_elementwise = True`.

    Raises:
        InputError: The optimizer is not known to be elementwise.
    """
    kind = type(optimizer)
    if kind in (getattr(torch.optim, name) for name in ELEMENTWISE) or getattr(optimizer, "is_elementwise", False):
        return
    raise InputError(
        f"the plan shards the optimizer over replicas, and {kind.__name__} is not known to step every element of a "
        "parameter by itself",
        hint="Plan with --no-sharded-optimizer, use an elementwise optimizer such as AdamW, or, if it is one, set its "
        "attribute is_elementwise to True.",
    )
