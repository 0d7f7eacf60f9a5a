"""The profile of a model without tied parameters."""

import msgspec

from penstock.profile.types import Profile

_UNTIED = "The model is planned without tied parameters: train it with a copy of them in each layer."


def untied(profile: Profile) -> Profile:
    """The same model with a copy of tied parameters in each layer that uses them.

    Args:
        profile: The profile; `parameter_bytes` of its layers include tied parameters already.

    >>> from penstock.profile.load import load_profile
    >>> profile = load_profile("gpt2", kinds=["T4"])
    >>> len(profile.ties), len(untied(profile).ties)
    (1, 0)
    """
    if not profile.ties:
        return profile
    return msgspec.structs.replace(profile, ties=(), parameter_counts=None, assumptions=(*profile.assumptions, _UNTIED))
