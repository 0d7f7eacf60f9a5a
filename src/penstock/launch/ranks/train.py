"""What a rank does: makes the script's model, puts it under the plan, trains, and tells how it goes."""

import os
import re
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.bundle import Opened
from penstock.errors import InputError, ProfileWarning
from penstock.launch.events import Began, Event, Noted, Sampled, Stepped
from penstock.launch.model_script import Given, Script, load_script, run_in_script
from penstock.launch.ranks.checkpoints import Saving
from penstock.launch.train_options import Training
from penstock.profile import Profile

if TYPE_CHECKING:
    import torch

    from penstock.runtime import StepDone

Tell = Callable[[Event], None]

DEFAULT_LR = 3e-4
REPEATED = re.compile(r" \(\d+\)$")
SAMPLE_EVERY_S = 0.5
"""About so often ranks put together what happened when; it costs them some milliseconds."""
SAMPLE_EVERY_PART = 0.01
"""But not before so much longer has been trained: all are kept, and a training may take weeks."""


def train_rank(
    asked: Training, tell: Tell, *, alone: bool, keep_gradients: bool = False, follow: str | None = None
) -> dict[str, Any]:
    """Train; gives the parameters and buffers of this rank in the end.

    With `keep_gradients` also the gradients of every step; with `follow`, a file of such, how they differ from those.
    """
    import torch
    import torch.distributed as dist

    from penstock.model import own_gpu
    from penstock.runtime import Recipe, train_steps
    from penstock.runtime.verify import Following, gradients_of

    asked, opened = asked.open()
    assert asked.global_batch_size is not None, "opening the plan has seen to that"
    expected_rows = asked.global_batch_size * asked.accumulate
    if asked.threads is not None:
        torch.set_num_threads(asked.threads)
    _seed(asked.seed)
    # Where a model goes that is nowhere yet.
    here = own_gpu() if torch.cuda.is_available() else torch.device("cpu")
    script = load_script(asked.script)
    given = script.make_model()
    device = next((item.device for item in given.model.parameters() if not item.is_meta), here)
    if not alone:
        _join(asked.timeout, device.type)
    is_first = alone or dist.get_rank() == 0

    def train() -> dict[str, Any]:
        trainer = _alone(given, opened, asked, device) if alone else _pipeline(given, opened, asked, device)
        optimizer = _optimizer(script, trainer, asked)
        make_scheduler = script.find("make_scheduler")
        scheduler = make_scheduler(optimizer) if make_scheduler else None
        saving = Saving(trainer, scheduler, asked, tell)
        first = saving.begin()
        recipe = Recipe(asked.steps, asked.accumulate, asked.clip, asked.bf16, device.type, first)
        batches = _batches(script, given, asked, tell)
        next_sample, num_done = 0, first
        kept: list[Any] = []
        following = Following(torch.load(follow, map_location="cpu")["gradients"]) if follow else None

        def before_optimizer() -> None:
            if keep_gradients:
                kept.append(gradients_of(trainer.named_parameters()))
            if following is not None:
                following.take(trainer.named_parameters())

        for done in train_steps(
            trainer,
            optimizer,
            batches,
            recipe,
            scheduler=scheduler,
            begins=lambda step: tell(Began(step)),
            before_optimizer=before_optimizer,
        ):
            num_done += 1
            if done.num_rows != expected_rows:
                tell(Noted(f"the script's batches do not have the {asked.global_batch_size} rows of the prediction"))
            if is_first:
                tell(Stepped(done.step, done.loss, done.num_rows, done.seconds))
            if not alone and (done.step >= next_sample or num_done == asked.steps):
                next_sample = done.step + _sample(trainer, done, tell)
            saving.after(num_done)
        saving.finish(num_done)
        if num_done < asked.steps:
            tell(Noted(f"the script's batches ended after {num_done} of {asked.steps} steps"))
        trainer.close()
        named = {name: item.detach() for name, item in trainer.named_parameters().items()}
        gradients = kept if following is None else following.offs
        return {"parameters": named, "buffers": trainer.named_buffers(), "gradients": gradients}

    with _warnings_told(tell):
        state: dict[str, Any] = run_in_script(script.path, train)
    if not alone:
        dist.destroy_process_group()
    return state


@contextmanager
def _warnings_told(tell: Tell) -> Iterator[None]:
    """Where what is trained is not what was profiled, whoever started this should know."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *more: Any) -> None:
            if issubclass(category, ProfileWarning):
                tell(Noted(str(message)))
            else:
                others(message, category, *more)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _seed(seed: int) -> None:
    """Every rank draws the same, whatever the script draws with."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - for scripts that use it
    torch.manual_seed(seed)


def _join(timeout_s: float, device_type: str) -> None:
    import torch.distributed as dist

    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE") and "GLOO_SOCKET_IFNAME" not in os.environ:
        # All ranks are here: they meet even where the host's own name leads nowhere.
        names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
        if names:
            os.environ["GLOO_SOCKET_IFNAME"] = names[0]
    backend = "gloo" if device_type == "cpu" else f"cpu:gloo,{device_type}:nccl"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))


def _pipeline(given: Given, opened: Opened, asked: Training, device: "torch.device") -> Any:
    from penstock.runtime import Pipeline

    wanted: dict[str, Any] = {"check_finite": True} if asked.check_finite else {}
    return Pipeline(
        given.model,
        opened.plan,
        _loss(given),
        profile=opened.profile,
        cluster=opened.cluster,
        blocks=_block_names(given, opened.profile),
        inputs=given.inputs,
        seed=asked.seed,
        timeout_s=asked.timeout,
        device=device,
        **wanted,
    )


def _alone(given: Given, opened: Opened, asked: Training, device: "torch.device") -> Any:
    from penstock.model import find_blocks
    from penstock.runtime.layout import check_units
    from penstock.runtime.state import materialize
    from penstock.runtime.verify import Alone

    materialize(given.model, seed=asked.seed, device=device)
    blocks = find_blocks(given.model, _block_names(given, opened.profile), given.inputs)
    check_units(opened.plan, blocks)
    return Alone(given.model, blocks, opened.plan.num_microbatches, _loss(given), seed=asked.seed)


def _block_names(given: Given, profile: Profile) -> list[str] | None:
    """The blocks that were profiled, as far as the model has them under these names; None: to be found."""
    from penstock.model import is_plain_sequential

    names = [unit.name for unit in profile.units]
    if is_plain_sequential(given.model) and names == list(given.model._modules):
        return None
    known = dict(given.model.named_modules(remove_duplicate=False))
    # A block that is called again is a unit with a number behind its name.
    names = [name if name in known else REPEATED.sub("", name) for name in names]
    return names if all(name in known for name in names) else None


def _loss(given: Given) -> Callable[[Any, Any], Any]:
    """A loss of two arguments, as pipelines call it."""
    if given.targets is not None:
        return given.loss
    return lambda output, targets: given.loss(output) if targets is None else given.loss(output, targets)


def _optimizer(script: Script, trainer: Any, asked: Training) -> Any:
    import torch

    make = script.find("make_optimizer")
    if make is None:
        return trainer.optimizer(torch.optim.AdamW, lr=DEFAULT_LR if asked.lr is None else asked.lr)
    if asked.lr is not None:
        raise InputError("--lr: the script makes its own optimizer", hint="Set it in make_optimizer, or leave it out.")

    def checked(parameters: list[Any]) -> torch.optim.Optimizer:
        found = make(parameters)
        if not isinstance(found, torch.optim.Optimizer):
            raise InputError(
                f"make_optimizer returned a {type(found).__name__}", hint="Return an optimizer of torch.optim."
            )
        allowed = set(map(id, parameters))
        if any(id(item) not in allowed for group in found.param_groups for item in group["params"]):
            raise InputError(
                "make_optimizer used other parameters than those that it was given",
                hint="Make it for its argument: a rank trains a part of the model only.",
            )
        return found

    return trainer.optimizer(checked)


def _batches(script: Script, given: Given, asked: Training, tell: Tell) -> Iterator[Any]:
    from penstock.runtime import repeated, with_own_numbers

    assert asked.global_batch_size is not None, "opening the plan has seen to that"
    make = script.find("make_batches")
    if make is None:
        tell(Noted("the script has no make_batches: the sample batch of make_model is trained on over and over"))
        return repeated((given.inputs, given.targets), asked.global_batch_size)
    _seed(asked.seed)
    return with_own_numbers(make(asked.global_batch_size), asked.seed)


def _sample(pipe: Any, done: "StepDone", tell: Tell) -> int:
    """Put together what happened when; gives after how many steps to do so again, the same on every rank."""
    import torch
    import torch.distributed as dist

    from penstock.dist import failing_in_words
    from penstock.runtime import check_same_batch

    rank = dist.get_rank()
    step_s = torch.tensor([done.seconds], dtype=torch.float64)
    with failing_in_words(lambda: f"rank {rank}, step {done.step}, compares batches with other ranks"):
        check_same_batch(done.batch, done.step)
        dist.broadcast(step_s, 0)
    found = pipe.last_timeline()
    if rank == 0:
        tell(Sampled(done.step, tuple(found.start_s.tolist()), tuple(found.end_s.tolist())))
    return max(1, round(SAMPLE_EVERY_S / float(step_s)), int(SAMPLE_EVERY_PART * done.step))
