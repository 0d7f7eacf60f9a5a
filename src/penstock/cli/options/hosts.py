"""Which hosts train together: --nnodes, --node-rank, --rdzv-endpoint."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.launch import Hosts

F = TypeVar("F", bound=Callable[..., Any])


def host_options(verb: F) -> F:
    """--nnodes, --node-rank and --rdzv-endpoint; the verb gets them as `hosts`."""

    @wraps(verb)
    def wrapped(nnodes: int, node_rank: int, rdzv_endpoint: str | None, **options: Any) -> Any:
        return verb(hosts=Hosts(nnodes, node_rank, rdzv_endpoint), **options)

    for option in (
        click.option("--rdzv-endpoint", help="Where several hosts meet: address:port of host 0."),
        click.option("--node-rank", type=click.IntRange(0), default=0, help="Which of the hosts this one is, from 0."),
        click.option("--nnodes", type=click.IntRange(1), default=1, help="Hosts that train together; start on each."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
