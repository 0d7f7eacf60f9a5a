"""Random numbers that belong to a place in training, not to a process.

Dropout draws the mask of every row from a stream of its own, named by (seed, step, row of the batch, unit, which call
in that unit): so it is the same on any device, however rows are split, and when a forward runs again. All else that
draws random numbers reads torch's own generators, which are set for every unit from (seed, step, first row, unit) and
put back afterwards.
"""

import hashlib
import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from penstock.errors import InputError, RunError
from penstock.runtime.tensors import Rows

ALPHA = 1.0507009873554805 * 1.6732632423543772
"""SELU's two constants: minus its lowest value."""


class Streams:
    """The streams of one run of some units for some rows."""

    def __init__(self, seed: int, step: int, rows: Rows, *, is_split: bool, device: torch.device) -> None:
        self._name = (seed, step)
        self._rows = rows
        self._is_split = is_split
        self._device = device
        self._own: torch.Generator | None = None
        self._unit = 0
        self._calls = 0
        self._set: list[Tensor] | None = None
        """What the generators were set to last, if somebody wants to know whether they were drawn from."""
        self.may_draw = False
        """Whether something asked for random numbers, or would with other settings."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """The generators of torch are afterwards as they were before."""
        states = generator_states(self._device)
        try:
            yield
        finally:
            set_generator_states(self._device, states)

    def enter(self, unit: int, *, watch: bool = False) -> None:
        """What comes next belongs to this unit. With `watch`, `may_draw` says whether it reads torch's generators."""
        self.leave()
        self._unit, self._calls = unit, 0
        for generator in _generators(self._device):
            generator.manual_seed(_number(*self._name, self._rows.start, unit, -1))
        self._set = generator_states(self._device) if watch else None

    def leave(self) -> None:
        """What belonged to the unit has ended."""
        if self._set is not None:
            now = generator_states(self._device)
            self.may_draw |= not all(map(torch.equal, self._set, now))
            self._set = None

    def dropout(self, x: Tensor, p: float, *, in_place: bool, by_channel: bool = False) -> Tensor:
        """Dropout in training; `by_channel` drops whole channels, as dropout2d does."""
        noise = self._noise(x, p, by_channel=by_channel)
        if p < 1.0:
            noise.div_(1.0 - p)
        return x.mul_(noise) if in_place else x * noise

    def alpha_dropout(self, x: Tensor, p: float, *, in_place: bool, by_channel: bool = False) -> Tensor:
        """Dropout that keeps mean and variance behind SELU: what is dropped becomes that function's lowest value."""
        noise = self._noise(x, p, by_channel=by_channel)
        if p == 1.0:
            return x.mul_(noise) if in_place else x * noise
        scale = 1 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
        moved = (noise - 1).mul_(ALPHA * scale).add_(ALPHA * scale * p)
        noise.mul_(scale)
        return x.mul_(noise).add_(moved) if in_place else x * noise + moved

    def _noise(self, x: Tensor, p: float, *, by_channel: bool) -> Tensor:
        """Ones, and zeros where something is dropped."""
        if not 0.0 <= p <= 1.0:
            raise InputError(f"the probability of dropout must be between 0 and 1, not {p}")
        call, self._calls = self._calls, self._calls + 1
        shape = [*x.shape[:2], *[1] * (x.dim() - 2)] if by_channel else list(x.shape)
        noise = torch.zeros(shape, dtype=x.dtype, device=x.device)
        if p == 1.0:
            return noise
        if self._own is None:
            self._own = torch.Generator(x.device)
        count = self._rows.num
        if noise.dim() > 0 and noise.shape[0] % count == 0:
            # Often rows and positions, or rows and heads, are one dimension: a row's part lies together.
            parts = noise.view(count, noise.shape[0] // count, *shape[1:])
        elif self._is_split:
            raise InputError(
                f"dropout of a tensor of shape {tuple(x.shape)}, whose first dimension is not the {count} rows, in a "
                "stage that several devices share: which mask belongs to which row is not known",
                hint="Put rows first, or plan so that one device has the whole stage.",
            )
        else:
            parts = noise.unsqueeze(0)
        for number, part in enumerate(parts):
            self._own.manual_seed(_number(*self._name, self._rows.start + number, self._unit, call))
            part.bernoulli_(1.0 - p, generator=self._own)
        return noise


@contextmanager
def untouched(device: torch.device) -> Iterator[None]:
    """Around an iteration, whose blocks draw from streams: if one does not, its numbers are not those of one process.

    That happens where a stage did not draw in its first run, and so is not looked at in later ones.
    """
    before = generator_states(device)
    yield
    if not all(map(torch.equal, before, generator_states(device))):
        raise RunError(
            "a block drew random numbers, which it did not when it first ran",
            hint="Random numbers must be drawn in the first step too (dropout may begin with p = 0), and no other "
            "thread may draw from torch's own generator during a step.",
        )


@contextmanager
def drawing_from(device: torch.device, *name: int) -> Iterator[None]:
    """Torch's generators begin at this name, and are afterwards as they were before."""
    states = generator_states(device)
    try:
        for generator in _generators(device):
            generator.manual_seed(_number(*name))
        yield
    finally:
        set_generator_states(device, states)


def generator_states(device: torch.device) -> list[Tensor]:
    """The states of torch's generators for work on this device: the processor's, and the device's own if it has one."""
    return [generator.get_state() for generator in _generators(device)]


def set_generator_states(device: torch.device, states: Sequence[Tensor]) -> None:
    """Put them back; a generator that has no state there is left as it is."""
    for generator, state in zip(_generators(device), states, strict=False):
        generator.set_state(state)


def _number(*name: int) -> int:
    """A seed from a name: different names, unrelated seeds."""
    digest = hashlib.blake2b(struct.pack(f"<{len(name)}q", *name), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _generators(device: torch.device) -> tuple[torch.Generator, ...]:
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.default_generator, torch.cuda.default_generators[index]
    return (torch.default_generator,)
