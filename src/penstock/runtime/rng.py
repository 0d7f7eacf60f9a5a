"""Random numbers keyed by position in training, so that they do not depend on the rank.

Dropout draws the mask of every row from a generator seeded with (seed, step, row of the batch, layer, number of the
call within the layer). The mask is the same on every device, for every split of the rows, and when a forward is
recomputed. All other random functions read torch's own generators. These are seeded for every layer and after every
call of dropout with (seed, step, first row, layer, number of the call), and restored after the forward.

The seed of torch's generator therefore tells the position. `torch.utils.checkpoint` restores the generator before it
recomputes a part of a layer in the backward, so that dropout finds its position again there.
"""

import hashlib
import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.device import default_generators
from penstock.errors import InputError, RunError
from penstock.runtime.tensors import Rows

ALPHA = 1.0507009873554805 * 1.6732632423543772
"""The product of SELU's two constants: minus its lowest value."""


class RowRng:
    """The random numbers of one forward: some layers, some rows of a batch.

    Args:
        seed: Seed of the training run.
        step: Number of the iteration.
        rows: The rows of the batch that the forward computes.
        is_split: Whether several devices share the rows of a micro-batch. Then every mask must be drawn by row.
        device: Device of the forward.
    """

    def __init__(self, seed: int, step: int, rows: Rows, *, is_split: bool, device: torch.device) -> None:
        self._key = (seed, step)
        self._rows = rows
        self._is_split = is_split
        self._device = device
        self._generator: torch.Generator | None = None
        self._position: _Position | None = None
        """The position of the forward; None after it."""
        self._positions: dict[int, _Position] = {}
        """The position that each seed of torch's generator stands for."""
        self._seeded_states: list[Tensor] | None = None
        """States of torch's generators at the start of the layer, if draws are tracked."""
        self.may_draw = False
        """Whether the forward draws random numbers, or would with other settings (p > 0)."""

    @contextmanager
    def preserve_state(self) -> Iterator[None]:
        """Context of the forward: restore torch's generators on exit. Later draws are those of recomputations."""
        states = get_rng_states(self._device)
        try:
            yield
        finally:
            self._position = None
            set_rng_states(self._device, states)

    def enter_layer(self, layer: int, *, track: bool = False) -> None:
        """Start a layer: the following draws belong to it.

        Args:
            layer: Number of the layer in the model.
            track: Whether to set `may_draw` if the layer reads torch's generators.
        """
        self.leave_layer()
        self._position = self._seed_generators(layer, 0)
        self._seeded_states = get_rng_states(self._device) if track else None

    def leave_layer(self) -> None:
        """End the layer."""
        if self._seeded_states is not None:
            states = get_rng_states(self._device)
            self.may_draw |= not all(map(torch.equal, self._seeded_states, states))
            self._seeded_states = None

    def dropout(self, x: Tensor, p: float, *, in_place: bool, by_channel: bool = False) -> Tensor:
        """Dropout in training mode. With `by_channel` whole channels are dropped, as by dropout2d."""
        noise = self._noise(x, p, by_channel=by_channel)
        if p < 1.0:
            noise.div_(1.0 - p)
        return x.mul_(noise) if in_place else x * noise

    def alpha_dropout(self, x: Tensor, p: float, *, in_place: bool, by_channel: bool = False) -> Tensor:
        """Dropout that keeps mean and variance after SELU: dropped elements become the lowest value of SELU."""
        noise = self._noise(x, p, by_channel=by_channel)
        if p == 1.0:
            return x.mul_(noise) if in_place else x * noise
        scale = 1 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
        shift = (noise - 1).mul_(ALPHA * scale).add_(ALPHA * scale * p)
        noise.mul_(scale)
        return x.mul_(noise).add_(shift) if in_place else x * noise + shift

    def _noise(self, x: Tensor, p: float, *, by_channel: bool) -> Tensor:
        """Zeros for dropped elements, ones for the others."""
        if not 0.0 <= p <= 1.0:
            raise InputError(f"dropout probability ({p}) must be between 0 and 1")
        layer, call = self._find_position()
        following = self._seed_generators(layer, call + 1)
        if self._position is not None:
            self._position = following
        shape = [*x.shape[:2], *[1] * (x.dim() - 2)] if by_channel else list(x.shape)
        noise = torch.zeros(shape, dtype=x.dtype, device=x.device)
        if p == 1.0:
            return noise
        if self._generator is None:
            self._generator = torch.Generator(x.device)
        count = self._rows.num
        if noise.dim() > 0 and noise.shape[0] % count == 0:
            # Models often merge rows and positions, or rows and heads, into one dimension. Then the elements of a row
            # are contiguous.
            parts = noise.view(count, noise.shape[0] // count, *shape[1:])
        elif self._is_split:
            raise InputError(
                f"dropout of a tensor of shape {tuple(x.shape)} in a stage with several replicas: its first dimension "
                f"must be divisible by the number of rows ({count}), so that every row gets its own mask",
                hint="Put rows first, or plan the stage on one device.",
            )
        else:
            parts = noise.unsqueeze(0)
        for number, part in enumerate(parts):
            self._generator.manual_seed(_seed_of(*self._key, self._rows.start + number, layer, call))
            part.bernoulli_(1.0 - p, generator=self._generator)
        return noise

    def _seed_generators(self, layer: int, call: int) -> "_Position":
        """Seed torch's generators for a position, and return it."""
        seed = _seed_of(*self._key, self._rows.start, layer, -1 - call)
        self._positions[seed] = _Position(layer, call)
        for generator in default_generators(self._device):
            generator.manual_seed(seed)
        return self._positions[seed]

    def _find_position(self) -> "_Position":
        """Return the position that torch's generator stands for."""
        position = self._positions.get(torch.default_generator.initial_seed(), self._position)
        if position is None:
            raise InputError(
                "dropout in a backward does not follow any state of torch's random generator in its forward, so it "
                "would draw other numbers",
                hint="Call torch.utils.checkpoint with preserve_rng_state=True, and do not seed torch in the forward.",
            )
        return position


class _Position(NamedTuple):
    """The next call of dropout in a layer."""

    layer: int
    call: int


@contextmanager
def forbid_untracked_draws(device: torch.device) -> Iterator[None]:
    """Raise RunError if torch's generators advance during an iteration.

    A stage that draws nothing in its first forward runs without a `RowRng` later. If it then draws after all, its
    numbers are not those of a single process.
    """
    states = get_rng_states(device)
    yield
    if not all(map(torch.equal, states, get_rng_states(device))):
        raise RunError(
            "a layer drew random numbers in this step, but drew none in its first forward",
            hint="Draw random numbers in the first step too (dropout may start with p = 0), and do not use torch's "
            "default generator in another thread during a step.",
        )


@contextmanager
def fork_rng(device: torch.device, *key: int) -> Iterator[None]:
    """Seed torch's generators with a key, and restore them on exit."""
    states = get_rng_states(device)
    try:
        for generator in default_generators(device):
            generator.manual_seed(_seed_of(*key))
        yield
    finally:
        set_rng_states(device, states)


def get_rng_states(device: torch.device) -> list[Tensor]:
    """States of torch's generators for work on a device: the CPU generator, and the device's own if it has one."""
    return [generator.get_state() for generator in default_generators(device)]


def set_rng_states(device: torch.device, states: Sequence[Tensor]) -> None:
    """Restore the states of torch's generators. A generator without a state is left unchanged."""
    for generator, state in zip(default_generators(device), states, strict=False):
        generator.set_state(state)


def _seed_of(*key: int) -> int:
    """Hash a key to a seed, so that the seeds of different keys are unrelated."""
    digest = hashlib.blake2b(struct.pack(f"<{len(key)}q", *key), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
