"""Check that a model is the one that a plan was made for, by the parameters of its layers.

[Note: what is compared] A plan records the names and the parameter bytes of the profile's layers. Names alone do not
distinguish models: a computed profile has names of its own, and modules may be renamed. Bytes depend on the precision:
the same model has half of them in bf16. So the sizes of the model's parameters are compared at its own precision, and
with all parameters in 2, 4 or 8 bytes; one of these must fit every layer. Whether a parameter is trained has no effect.
"""

from collections.abc import Sequence

from penstock.errors import MismatchError
from penstock.model import Block
from penstock.plan import Plan, PlannedLayer, planned_layers
from penstock.profile import Profile
from penstock.units import show_bytes

ELEMENT_BYTES = (2, 4, 8)
"""Bytes of a parameter's element in the precisions of training."""
TOLERANCE = 0.02
"""Relative difference that is ignored for a layer of the same name, such as a small adapter."""
TOLERANCE_RENAMED = 0.1
"""The same where names differ. A computed profile may leave out biases, or the padding of a table."""


def check_planned_model(plan: Plan, blocks: Sequence[Block], profile: Profile | None = None) -> None:
    """Check that a model has the layers that a plan was made for.

    Args:
        plan: The plan.
        blocks: The layers of the model.
        profile: The profile of the plan, for a plan that does not record its layers. Without either, the number of
            layers is all that can be compared.

    Raises:
        MismatchError: The numbers of layers differ, or the parameters of a layer.
    """
    planned = plan.layers or (planned_layers(profile) if profile is not None else ())
    if plan.num_units != len(blocks):
        raise MismatchError(
            f"the plan covers {plan.num_units} layers, but the model has {len(blocks)}",
            hint="Plan with a profile of this model, or list the same blocks as for the profile.",
        )
    # A profile without any parameters, as some files of other tools are, says nothing about them.
    if not any(layer.parameter_bytes for layer in planned):
        return
    counts = [sum(item.numel() for item in block.parameters.values()) for block in blocks]
    own = [sum(item.numel() * item.element_size() for item in block.parameters.values()) for block in blocks]
    candidates = [(_differing(planned, blocks, own, TOLERANCE), own, "")]
    for each in ELEMENT_BYTES:
        # Of the same module in another precision, every byte is known.
        sizes = [each * count for count in counts]
        candidates.append((_differing(planned, blocks, sizes, 0.0), sizes, f", at {each} bytes each"))
    differing, sizes, unit = min(candidates, key=lambda item: len(item[0]))
    if not differing:
        return
    first = differing[0]
    layer, name = planned[first], blocks[first].name
    theirs = "it has" if layer.name == name else f"layer {layer.name!r} has"
    raise MismatchError(
        f"the plan was made for another model ({plan.profile.name!r}): layer {name!r} of this model has "
        f"{show_bytes(sizes[first])} of parameters{unit}, but {theirs} {show_bytes(layer.parameter_bytes)} in the "
        "plan's profile",
        hint="Profile this model and plan with that profile, or use the model that the plan was made for.",
    )


def _differing(
    planned: Sequence[PlannedLayer], blocks: Sequence[Block], sizes: Sequence[int], tolerance: float
) -> list[int]:
    """The layers whose parameters differ; by more than `tolerance` where the names agree."""
    typical = sum(layer.parameter_bytes for layer in planned) / len(planned)
    differing = []
    for number, (layer, block, size) in enumerate(zip(planned, blocks, sizes, strict=True)):
        off, largest = abs(size - layer.parameter_bytes), max(size, layer.parameter_bytes)
        # A small layer of a computed profile may be off by more, such as a norm without a bias.
        least = tolerance * largest if layer.name == block.name else TOLERANCE_RENAMED * max(largest, typical)
        if off > least:
            differing.append(number)
    return differing
