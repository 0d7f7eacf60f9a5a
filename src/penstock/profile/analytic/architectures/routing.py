"""Checks of the routing to experts."""

from penstock.profile.analytic.architectures.model_config import ConfigError


def check_routing(per_token: int, count: int) -> None:
    """Check that a token is not routed to more experts than there are.

    Raises:
        ConfigError: It is.
    """
    if per_token > count:
        raise ConfigError("num_experts_per_tok", f"{per_token:,} experts for each token, but there are {count:,}")
