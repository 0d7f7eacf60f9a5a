"""The slowness of every link over the measured iterations, from messages and from all-reduces."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.adaptation.measurement import Link, Measurement

AS_SLOW = 1.06
"""A link explains a slow all-reduce if it is as slow up to this factor."""

Series = dict[Link, list[float]]
"""Logarithms of a slowness, the latest last."""


def link_series(history: Sequence[Measurement], window: int, min_samples: int) -> Series:
    """The slowness of every link that was measured.

    Awaited messages give it. Messages that no device waited for, and all-reduces, give an upper limit, by which a link
    that was slow is seen to have recovered. If no link with awaited messages explains how long an all-reduce took, the
    other links of its ring are as slow as it was.

    Args:
        history: The measured iterations.
        window: How many of the latest values of a link are used.
        min_samples: How many upper limits a recovery takes.
    """
    exact, limits = _message_series(history)
    by_ring = _ring_series(history[-window:], exact, limits)
    series = {link: values[-window:] for link, values in {**by_ring, **exact}.items()}
    for link, values in limits.items():
        known, latest = series.get(link), values[-window:]
        if known is not None and len(latest) >= min_samples and np.median(latest) < np.median(known):
            series[link] = [max(0.0, value) for value in latest]
    return series


def _message_series(history: Sequence[Measurement]) -> tuple[Series, Series]:
    """The slowness by awaited messages, and the upper limits since the last of them."""
    exact: Series = {}
    limits: Series = {}
    for item in history:
        for link, (slowness, is_exact) in item.links.items():
            if slowness <= 0:
                continue
            (exact if is_exact else limits).setdefault(link, []).append(math.log(slowness))
            if is_exact:
                limits.pop(link, None)
    return exact, limits


def _ring_series(history: Sequence[Measurement], exact: Mapping[Link, list[float]], limits: Series) -> Series:
    """The slowness of links that only all-reduces show. Adds the upper limits of the other links of their rings."""
    found: Series = {}
    known = {link: float(np.median(values[-len(history) :])) for link, values in exact.items()}
    for item in history:
        for ring, slowness in item.rings.items():
            if slowness <= 0:
                continue
            slowest = max((known[link] for link in ring if link in known), default=-math.inf)
            is_explained = slowest + math.log(AS_SLOW) >= math.log(slowness) > math.log(AS_SLOW)
            for link in ring:
                target = limits if link in known or is_explained else found
                target.setdefault(link, []).append(math.log(slowness))
    return found
