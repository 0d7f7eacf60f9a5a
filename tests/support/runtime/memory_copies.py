"""Training that is copied into memory and goes on under another plan, as functions that ranks can run."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from tests.support.runtime.checkpoint_runs import NUM_ROWS, SEED
from tests.support.runtime.models import KINDS


def _make(plan: Plan, seed: int) -> tuple[Pipeline, torch.optim.Optimizer]:
    pipe = Pipeline(KINDS["mlp"].model(), plan, KINDS["mlp"].loss, seed=seed, timeout_s=60)
    return pipe, pipe.optimizer(torch.optim.AdamW, lr=1e-2)


def _step(pipe: Pipeline, optimizer: torch.optim.Optimizer) -> Tensor:
    optimizer.zero_grad()
    loss = pipe.step(*KINDS["mlp"].batch(pipe._step, NUM_ROWS))
    optimizer.step()
    return loss.detach()


def _state(pipe: Pipeline, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    names: dict[Tensor, str] = {item: name for name, item in pipe.named_parameters().items()}
    state = {name: item.detach().clone() for item, name in names.items()}
    for item, values in optimizer.state.items():
        state |= {f"{names[item]} {key}": torch.as_tensor(value).clone() for key, value in values.items()}
    return state


def copy_then_train(folders: tuple[str, ...], plan: Plan, num_steps: int) -> list[dict[str, Tensor]]:
    """Train with a copy after every step but the last. Returns the state of this rank after each step."""
    pipe, optimizer = _make(plan, SEED)
    pipe.open_copies(folders[dist.get_rank()], generation=3)
    states = []
    for step in range(num_steps):
        _step(pipe, optimizer)
        states.append(_state(pipe, optimizer))
        if step + 1 < num_steps:
            pipe.save_copy(extra={"step": step})
    pipe._require_copies().finish()
    pipe.close()
    return states


def go_on(
    folders: tuple[str, ...], plan: Plan, generation: int
) -> tuple[int, object, int, dict[str, Tensor], list[str]]:
    """Restore a copy under a plan, with a model and generators of another seed.

    Returns:
        The next step, what was kept beside the state, the bytes received, the state, and the files of this rank's host.
    """
    torch.manual_seed(99)
    pipe, optimizer = _make(plan, SEED + 1)
    pipe.open_copies(folders[dist.get_rank()], generation=generation)
    loaded = pipe.load_copy()
    assert loaded is not None
    pipe._require_copies().finish()
    state = _state(pipe, optimizer)
    pipe.close()
    files = sorted(path.name for path in Path(folders[dist.get_rank()]).iterdir())
    return loaded.step, loaded.extra, loaded.num_moved_bytes, state, files
