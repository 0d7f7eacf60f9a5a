"""Random factors for perturbed simulations: the same for a seed, whatever else is drawn.

The factor of a cause (a device, a stage, a link) depends on the seed and the name of the cause only, so that two plans
with the same device or stage share its error. Over the samples, the factors of a cause are the quantiles of a normal
distribution in a random order: their mean and variance are exact, also with few samples.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats

MAX_DEVIATION = 0.5
"""Larger standard deviations count as this one: a factor is then between 0.2 and 5 nearly always."""
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
Words = npt.NDArray[np.uint64]


def cause_factors(seed: int, names: Sequence[npt.ArrayLike], deviation: float, num_samples: int) -> Floats:
    """Factors with mean 1, [sample, cause].

    Args:
        seed: The seed.
        names: Integers that name a cause, one array over causes each.
        deviation: Relative standard deviation.
        num_samples: The number of samples.
    """
    words = _mixed(np.full(len(np.asarray(names[0])), seed & _MASK, dtype=np.uint64))
    for name in names:
        words = _mixed(words ^ np.asarray(name).astype(np.int64).view(np.uint64))
    samples = _mixed(np.arange(1, num_samples + 1, dtype=np.uint64) * np.uint64(_GOLDEN))
    order = np.argsort(_mixed(samples[:, None] ^ words[None, :]), axis=0, kind="stable")
    return _factors(_quantiles(num_samples), deviation)[order]


def noise_factors(seed: int, sample: int, deviations: Floats) -> npt.NDArray[np.float32]:
    """Independent factors with mean 1 for single actions with these relative standard deviations."""
    generator = np.random.Generator(np.random.Philox(key=[seed & _MASK, sample]))
    drawn = generator.standard_normal(len(deviations), dtype=np.float32)
    limited = np.minimum(deviations, MAX_DEVIATION).astype(np.float32)
    return np.asarray(np.exp(limited * drawn - limited * limited / 2))


def _factors(drawn: Floats, deviation: float) -> Floats:
    factors = np.exp(min(deviation, MAX_DEVIATION) * drawn)
    return np.asarray(factors / factors.mean())


def _quantiles(count: int) -> Floats:
    """Normal quantiles with mean 0 and variance 1; a single one is 0."""
    normal = NormalDist()
    values = np.array([normal.inv_cdf((number + 0.5) / count) for number in range(count)])
    return np.asarray(values / values.std()) if count > 1 else values


def _mixed(words: Words) -> Words:
    """Scramble 64-bit words (the finalizer of splitmix64)."""
    mixed = words + np.uint64(_GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
