"""Spreads that no measurement of the profile itself states, from the comparisons in docs/accuracy.md."""

from collections.abc import Sequence

import msgspec

from penstock.profile.spread.spread import Spread

COMPUTED = Spread(
    reason=(
        "Assumed spread of computed times: 90 % of 1,080 iterations of a table of A100s are within 22 % of the "
        "prediction (docs/accuracy.md)."
    ),
    iteration=0.125,
    device=0.02,
    stage=0.03,
    link=0.1,
    action=0.02,
)
UNSTATED = Spread(
    reason=(
        "Assumed spread: the profile states none, so it is that of trainings with measured profiles (docs/accuracy.md)."
    ),
    excess=0.03,
    excess_virtual=0.015,
    excess_remote=0.03,
    iteration=0.03,
    device=0.03,
    stage=0.03,
    link=0.1,
    action=0.05,
)
PUBLISHED = msgspec.structs.replace(
    UNSTATED,
    reason=(
        "Assumed spread of published times: the file states none, so it is that of trainings with measured profiles "
        "(docs/accuracy.md)."
    ),
)


def measured_spread(
    forward: Sequence[float], input_grad: Sequence[float], weight_grad: Sequence[float], step: Sequence[float]
) -> Spread:
    """The spread of a measured profile: that of single passes is measured, errors of a whole run are assumed.

    Args:
        forward: Relative standard deviation of a single forward of each layer.
        input_grad: The same of input gradients.
        weight_grad: The same of weight gradients.
        step: The same of optimizer steps.
    """
    return msgspec.structs.replace(
        UNSTATED,
        reason=(
            "The spread of single passes was measured with them; errors of a device, a stage and a run are those of 19 "
            "trainings on CPUs (docs/accuracy.md)."
        ),
        is_measured=True,
        forward=tuple(forward),
        input_grad=tuple(input_grad),
        weight_grad=tuple(weight_grad),
        step=tuple(step),
    )
