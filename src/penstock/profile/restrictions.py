"""`Restriction`: a property of layers that decides which plans training accepts.

Training refuses a plan that breaks a restriction. Planners avoid such plans, and the proof refuses them.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

Rule: TypeAlias = Literal[
    "sync_replicas", "one_replica", "one_stage", "same_replicas", "no_recompute", "no_transfer", "fused_backward"
]


class Restriction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What the layers of a model require of a plan.

    Attributes:
        rule: The requirement:

            - `sync_replicas`: the replicas of a stage with such a layer exchange sums in every forward and backward, as
              batch norm does. They must run its micro-batches in an order in which they do not wait for each other in
              a cycle.
            - `one_replica`: a stage with such a layer runs on one device.
            - `one_stage`: all these layers are in the same stage.
            - `same_replicas`: the tensors after such a layer cannot be divided by rows, so the stages before and after
              a cut there have the same shares of rows.
            - `no_recompute`: a stage with such a layer is not recomputed.
            - `no_transfer`: the saved tensors of a stage with such a layer are not transferred: a remote backward
              recomputes, so the stage has none if another of its layers has the rule `no_recompute`.
            - `fused_backward`: the backward of a stage with such a layer is not split.
        units: Indices of the layers.
        reason: Why, for messages.

    Example:
        >>> Restriction(rule="one_stage", units=(1, 3), reason="they share the buffer 'norm.running_mean'").units
        (1, 3)
    """

    rule: Rule
    units: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.units or len(set(self.units)) < len(self.units):
            raise ValueError(f"restriction {self.rule} must name one or more different layers")
        if self.rule == "one_stage" and len(self.units) < 2:
            raise ValueError("restriction one_stage must name two or more layers")


def check_restrictions(restrictions: tuple[Restriction, ...], num_units: int) -> None:
    """Check that restrictions name layers that exist.

    Raises:
        ValueError: A restriction names a layer behind the last one.
    """
    for item in restrictions:
        if max(item.units) >= num_units:
            raise ValueError(
                f"restriction {item.rule} names layer {max(item.units)}, but the last layer is {num_units - 1}"
            )
