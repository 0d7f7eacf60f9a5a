"""The compiled rounds of the zero-bubble heuristic. See rounds.py. Import lazily: it compiles with numba."""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Floats, Ints

FORWARD, INPUT_GRAD, WEIGHT_GRAD = 0, 1, 2


class Stages(NamedTuple):
    """The stages of a straight pipeline, in order."""

    forward_s: Floats
    input_grad_s: Floats
    weight_grad_s: Floats
    down_s: Floats
    """Seconds of the activations that arrive at a stage; 0 for the first."""
    up_s: Floats
    """Seconds of the gradients that arrive at a stage; 0 for the last."""
    most_kept: Ints
    """Micro-batches that a stage may keep from F to W, at least 1."""


class State(NamedTuple):
    """The state of a run. Counts are [kind, stage]: how many passes of a kind a stage has run."""

    counts: Ints
    free_at: Floats
    bubble: Floats
    forward_end: Floats
    backward_end: Floats
    kind: Ints
    """[stage, position] the passes in their order; micro-batches of a kind ascend."""
    microbatch: Ints


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _put(stages: Stages, state: State, stage: int, kind: int, ready: float) -> None:
    """Run the next pass of a kind as soon as it is ready and the device is free."""
    counts = state.counts
    position = counts[FORWARD, stage] + counts[INPUT_GRAD, stage] + counts[WEIGHT_GRAD, stage]
    if position > 0:
        state.bubble[stage] += max(ready - state.free_at[stage], 0.0)
    if kind == FORWARD:
        seconds = stages.forward_s[stage]
    elif kind == INPUT_GRAD:
        seconds = stages.input_grad_s[stage]
    else:
        seconds = stages.weight_grad_s[stage]
    state.free_at[stage] = max(state.free_at[stage], ready) + seconds
    microbatch = counts[kind, stage]
    if kind == FORWARD:
        state.forward_end[stage, microbatch] = state.free_at[stage]
    elif kind == INPUT_GRAD:
        state.backward_end[stage, microbatch] = state.free_at[stage]
    state.kind[stage, position] = kind
    state.microbatch[stage, position] = microbatch
    counts[kind, stage] += 1


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _fill(stages: Stages, state: State, stage: int, ready: float, any_gap: bool) -> None:
    """Weight gradients in the wait for a pass."""
    counts, weights_s = state.counts, stages.weight_grad_s[stage]
    while counts[WEIGHT_GRAD, stage] < counts[INPUT_GRAD, stage] and state.free_at[stage] + weights_s <= ready:
        _put(stages, state, stage, WEIGHT_GRAD, 0.0)
    gap = ready - state.free_at[stage]
    if counts[WEIGHT_GRAD, stage] < counts[INPUT_GRAD, stage] and gap > 0:
        largest = state.bubble.max() if any_gap else state.bubble[: stage + 1].max()
        if state.bubble[stage] + gap > largest:
            _put(stages, state, stage, WEIGHT_GRAD, 0.0)


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _forward(stages: Stages, state: State, stage: int, any_gap: bool) -> None:
    counts = state.counts
    ready = 0.0
    if stage > 0:
        ready = state.forward_end[stage - 1, counts[FORWARD, stage]] + stages.down_s[stage]
    while (
        counts[FORWARD, stage] - counts[WEIGHT_GRAD, stage] >= stages.most_kept[stage]
        and counts[WEIGHT_GRAD, stage] < counts[INPUT_GRAD, stage]
    ):
        _put(stages, state, stage, WEIGHT_GRAD, 0.0)
    _fill(stages, state, stage, ready, any_gap)
    _put(stages, state, stage, FORWARD, ready)


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _backward(stages: Stages, state: State, stage: int, any_gap: bool) -> None:
    microbatch = state.counts[INPUT_GRAD, stage]
    if microbatch >= state.counts[FORWARD, stage]:
        _forward(stages, state, stage, any_gap)
    if stage == len(stages.forward_s) - 1:
        ready = state.forward_end[stage, microbatch]
    else:
        ready = state.backward_end[stage + 1, microbatch] + stages.up_s[stage]
    _fill(stages, state, stage, ready, any_gap)
    _put(stages, state, stage, INPUT_GRAD, ready)


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _num_more(stages: Stages, state: State, num: int, late_first_backward: bool) -> Ints:
    """How many forwards each stage runs after its first and before its first backward."""
    size = len(stages.forward_s)
    more = np.zeros(size, np.int64)
    due = state.free_at[size - 1] + stages.input_grad_s[size - 1]
    for stage in range(size - 2, -1, -1):
        due += stages.up_s[stage]
        clock = state.free_at[stage]
        while 1 + more[stage] < min(num, stages.most_kept[stage]):
            fits = clock + stages.forward_s[stage] <= due
            if not fits and not (late_first_backward and clock < due):
                break
            more[stage] += 1
            clock += stages.forward_s[stage]
            if not fits:
                break
        due = max(due, clock) + stages.input_grad_s[stage]
    for stage in range(1, size):
        while more[stage] > 0 and more[stage] >= more[stage - 1] and 1 + more[stage] < num:
            more[stage] -= 1
        more[stage] = min(more[stage], more[stage - 1])
    return more


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_rounds(
    stages: Stages, num: int, late_first_backward: bool, skip_forwards: bool, any_gap: bool
) -> tuple[Ints, Ints]:
    """The kinds and micro-batches of all passes, [stage, position]."""
    size = len(stages.forward_s)
    state = State(
        np.zeros((3, size), np.int64),
        np.zeros(size),
        np.zeros(size),
        np.zeros((size, num)),
        np.zeros((size, num)),
        np.zeros((size, 3 * num), np.int64),
        np.zeros((size, 3 * num), np.int64),
    )
    counts = state.counts
    for stage in range(size):
        _forward(stages, state, stage, any_gap)
    more = _num_more(stages, state, num, late_first_backward)
    for stage in range(size):
        for _ in range(more[stage]):
            _forward(stages, state, stage, any_gap)
    for stage in range(size - 1, -1, -1):
        _backward(stages, state, stage, any_gap)
    is_skipped = np.zeros(size, np.bool_)
    for _ in range(1, num):
        is_skipped[:] = False
        for stage in range(size - 1):
            if skip_forwards and counts[FORWARD, stage] >= counts[FORWARD, stage + 1] + 2:
                due = state.free_at[stage + 1] + stages.forward_s[stage + 1]
                due += stages.input_grad_s[stage + 1] + stages.up_s[stage]
                kept = counts[FORWARD, stage] - counts[WEIGHT_GRAD, stage]
                freed = max(kept + 1 - stages.most_kept[stage], 0) * stages.weight_grad_s[stage]
                is_skipped[stage] = state.free_at[stage] + freed + stages.forward_s[stage] > due
        for stage in range(size):
            if counts[FORWARD, stage] < num and not is_skipped[stage]:
                _forward(stages, state, stage, any_gap)
        for stage in range(size - 1, -1, -1):
            _backward(stages, state, stage, any_gap)
    for stage in range(size):
        while counts[WEIGHT_GRAD, stage] < num:
            _put(stages, state, stage, WEIGHT_GRAD, 0.0)
    return state.kind, state.microbatch
