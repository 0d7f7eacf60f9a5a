"""Options for training on several hosts: --nnodes, --node-rank, --rdzv-endpoint."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.launch import Hosts, slurm_hosts

F = TypeVar("F", bound=Callable[..., Any])


def host_options(verb: F) -> F:
    """Add --nnodes, --node-rank and --rdzv-endpoint; the command gets them as `hosts`."""

    @wraps(verb)
    def wrapped(nnodes: int | None, node_rank: int | None, rdzv_endpoint: str | None, **options: Any) -> Any:
        is_given = any(item is not None for item in (nnodes, node_rank, rdzv_endpoint))
        hosts = None if is_given else slurm_hosts(os.environ)
        return verb(hosts=hosts or Hosts(nnodes or 1, node_rank or 0, rdzv_endpoint), **options)

    for option in (
        click.option(
            "--rdzv-endpoint", help="Address and port of host 0, such as 10.0.0.1:29500. Required with --nnodes > 1."
        ),
        click.option("--node-rank", type=click.IntRange(0), help="Index of this host, from 0 [default: 0]."),
        click.option(
            "--nnodes",
            type=click.IntRange(1),
            help="Number of hosts; run the command on each of them [default: 1; in a Slurm step, its hosts].",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
