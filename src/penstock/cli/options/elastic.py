"""Options of elastic training: --elastic, --max-restarts, --min-devices, --peer-copies, --return-after."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.launch import ElasticOptions

F = TypeVar("F", bound=Callable[..., Any])


def elastic_options(verb: F) -> F:
    """Add the options of elastic training; the command gets them as `elastic`."""
    names = [item.name for item in fields(ElasticOptions)]

    @wraps(verb)
    def wrapped(**values: Any) -> Any:
        return verb(elastic=ElasticOptions(**{name: values.pop(name) for name in names}), **values)

    for option in (
        click.option(
            "--return-after",
            type=click.FloatRange(min=0),
            metavar="SECONDS",
            help="With --elastic: check a lost device after this time, and use it again if it works [default: 30].",
        ),
        click.option(
            "--peer-copies",
            type=click.IntRange(1),
            metavar="K",
            help="With --elastic: copy the state of every stage in memory every K steps [default: 1].",
        ),
        click.option(
            "--min-devices", type=click.IntRange(1), help="With --elastic: end on fewer devices [default: 1]."
        ),
        click.option(
            "--max-restarts", type=click.IntRange(0), help="With --elastic: go on after this many losses [default: 10]."
        ),
        click.option(
            "--elastic", is_flag=True, help="Go on without a lost rank, and use its device again when it works."
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
