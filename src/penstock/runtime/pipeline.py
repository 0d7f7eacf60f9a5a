"""The user's end: a model, a plan and a loss become a pipeline that trains."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import _get_default_store

from penstock.cluster import Cluster
from penstock.dist import Agreement, failing_in_words
from penstock.errors import InputError
from penstock.model import Carry, find_blocks, keep_freed_memory
from penstock.plan import Plan
from penstock.profile import Profile
from penstock.program import SEND_KINDS
from penstock.runtime.assembly import check_enough_ranks, forward_buffers, make_stages, trained_parameters
from penstock.runtime.checks import Profiled, SameBatches, SharedBuffers, check_same, let_go, make_held, told_forms
from penstock.runtime.executor import (
    Addresses,
    Clipping,
    Evaluator,
    Executor,
    Iteration,
    Losses,
    Returns,
    clip,
    eval_mode,
    forwards_of,
    gather_timeline,
)
from penstock.runtime.health import Doing, Watch
from penstock.runtime.layout import (
    check_meetings,
    check_units,
    first_trainers,
    links_of,
    make_layout,
    prove_plan,
    split_jobs,
)
from penstock.runtime.remote_backward import AS_PLANNED, KEPT, NOT_RUN
from penstock.runtime.rng import untouched
from penstock.runtime.stage import Loss
from penstock.runtime.state import (
    DEFAULT_KEEP,
    Checkpoints,
    Holdings,
    Init,
    Loaded,
    check_fillable,
    is_on_meta,
    state_entries,
    writers,
)
from penstock.runtime.tensors import count_rows, signature
from penstock.runtime.transport import Mail, backend_for, open_lanes, open_words
from penstock.timeline import Timeline

DEFAULT_TIMEOUT_S = 120.0


class Pipeline:
    """A model that is trained by a plan, over the ranks of torch.distributed.

    Rank k works as the k-th device in use, in the order of the cluster. Every rank makes the same call, with the same
    model, and keeps only what it needs of it. Without `profile` and `cluster` the jobs are ordered as if all blocks
    took the same time.

    A model on the meta device is made real on `device`, by each rank what it holds (`penstock.materialize` says with
    which values, and what `init` is); a model on a real device stays there.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        loss: Loss,
        *,
        profile: Profile | None = None,
        cluster: Cluster | None = None,
        blocks: Sequence[str] | None = None,
        inputs: Carry = None,
        seed: int = 0,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        check_finite: bool = False,
        device: torch.device | str = "cpu",
        init: Init | None = None,
    ) -> None:
        if not dist.is_initialized():
            raise InputError(
                "torch.distributed is not set up",
                hint="Call torch.distributed.init_process_group first, on every rank.",
            )
        check_fillable(model, init)
        found = find_blocks(model, blocks, inputs, torch.device(device))
        check_units(plan, found)
        self.proof = prove_plan(plan, found, profile, cluster)
        self._layout = make_layout(self.proof.costs, found)
        check_meetings(self.proof, self._layout)
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        check_enough_ranks(self._layout, self._world)
        real = (item.device for block in found for item in block.parameters.values() if not item.is_meta)
        self._device = next(real, torch.device(device))
        if self._device.type == "cpu":
            keep_freed_memory()
        backend = backend_for(self._device)
        told = f"rank {self._rank}, makes its pipeline with the other ranks"
        with failing_in_words(lambda: told):
            self._group = group = open_words(timeout_s)
        # Until a checkpoint is loaded there is nothing to train with.
        self._lacks_values = init == "checkpoint" and is_on_meta(model)
        found, failed = make_held(
            found, model, self._layout.stages, self._rank, seed=seed, device=self._device, init=init
        )
        with failing_in_words(lambda: f"rank {self._rank}, compares what it was given with other ranks"):
            check_same(found, self.proof.program, seed, group, failed)
        self._shared_buffers = SharedBuffers(model, found, self._layout.stages)
        links = links_of(self.proof.program, self._layout.devices, SEND_KINDS)
        rings = [item.ranks for item in self._layout.reducers]
        with failing_in_words(lambda: told):
            lanes, groups = open_lanes(group, backend, links, rings, device=self._device, timeout_s=timeout_s)
            self._mail = Mail(lanes, self._device, timeout_s)
        self._step = 0
        self._has_run = False
        self._seed = seed
        self._stepped_s = (0.0, 0.0)
        self._runners = make_stages(
            self._layout,
            self._rank,
            found,
            model,
            self._mail,
            device=self._device,
            seed=seed,
            check_finite=check_finite,
        )
        tellers = first_trainers(self._layout, found)
        everything = {name: item for name, item in model.named_parameters() if name in tellers}
        self._clipping = Clipping(everything, tellers, group, self._mail)
        entries = state_entries(model)
        let_go(model, [block for runner in self._runners.values() for block in runner.blocks])
        self._model = model
        actions = list(self.proof.program.actions(self._layout.devices[self._rank])) if self._is_used else []
        named = {name: item for runner in self._runners.values() for name, item in runner.trained.items()}
        reduced = {
            (item.is_tie, item.number): (one, [named[name] for name in item.parameters])
            for item, one in zip(self._layout.reducers, groups, strict=True)
            if self._rank in item.ranks
        }
        trained = self.named_parameters()
        home = writers(entries, found, self._layout.stages)
        addresses = Addresses(self._layout, self._rank)
        split = split_jobs(self.proof.program, self._layout.devices)
        given = self._runners, loss, self._mail
        self._executor = Executor(addresses, actions, *given, reduced, self._wait_for_parameters, split)
        self._evaluator = Evaluator(addresses, forwards_of(actions), *given, {}, self._wait_for_parameters, ())
        pairs = told_forms(self.proof.program, self._layout, self._world, in_order=lanes.is_in_order)
        store = _get_default_store()
        self._same = SameBatches(pairs, self._rank, self._mail, addresses.num_tags, store, group.group_name)
        self._profiled = Profiled(profile, found, self._layout.stages, self._rank)
        self._losses = Losses(self._layout, self._rank, self._world, self._mail)
        self._at_work = self._executor
        self._returns = Returns(
            actions,
            {number: list(runner.trained.values()) for number, runner in self._runners.items()},
            trained.values(),
            self._mail,
            addresses,
        )
        self._watch = Watch(group, self._layout.devices, self._doing, self._mail.sends.give_up)
        agreement = Agreement(self._mail, self._rank, self._world, self._watch.failed)
        self._checkpoints = Checkpoints(Holdings(model, entries, home, trained, self._device), agreement)

    @property
    def _is_used(self) -> bool:
        return self._rank < len(self._layout.devices)

    def _doing(self) -> Doing:
        return self._at_work.doing(self._step - 1)

    def _wait_for_parameters(self, stage: int) -> None:
        self._returns.finish(stage)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that are trained on this rank, under the model's own names, in the model's order."""
        return trained_parameters(self._layout, self._rank, self._runners)

    def named_buffers(self) -> dict[str, Tensor]:
        """The buffers of stages whose forward runs on this rank, under the model's own names."""
        return forward_buffers(self._layout, self._rank, self._runners, self._model)

    def optimizer(self, kind: Callable[..., torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
        """An optimizer of that kind, or made by that function, for the parameters that are trained on this rank.

        After its step, parameters that are also used elsewhere go there.
        """
        parameters = list(self.named_parameters().values())
        # torch refuses an optimizer of nothing; this one never gets a gradient.
        made = kind(parameters or [nn.Parameter(torch.empty(0))], **options)
        self._checkpoints.add(made)
        made.register_step_pre_hook(lambda *_: self._stepping(begins=True))
        made.register_step_post_hook(lambda *_: self._stepping(begins=False))
        return made

    def _stepping(self, *, begins: bool) -> None:
        if begins:
            self._stepped_s = (perf_counter(), 0.0)
            return
        self._stepped_s = (self._stepped_s[0], perf_counter())
        with self._watch.failing():
            self._returns.start(self._step - 1)

    def last_timeline(self) -> Timeline:
        """What happened when in the last iteration, on all ranks. Every rank must ask together."""
        if not self._has_run:
            raise InputError("no iteration has been run yet", hint="Call pipe.step first.")
        spans, devices = self._executor.spans_s(), self._layout.devices
        # Without a step of the optimizer since then, that takes no time at the end.
        ended_s = max((end for _, end in spans), default=0.0)
        stepped_s = self._stepped_s if self._stepped_s[0] >= ended_s else (ended_s, ended_s)
        with self._watch.failing(), failing_in_words(lambda: f"rank {self._rank}, puts together what happened when"):
            return gather_timeline(self.proof, devices, spans, stepped_s, self._group)

    def mechanisms(self) -> dict[int, str]:
        """For each stage that this rank has a part in: how its backward gets what it needs of the forward.

        For a moved stage that is known when it has run: saved tensors shipped, or the forward run again, and why.
        """
        found = {}
        for number in self._runners:
            view = self._layout.stages[number]
            found[number] = AS_PLANNED if view.recompute else KEPT if view.is_at_home(self._rank) else NOT_RUN
        return found | self._executor.mechanisms()

    def step(self, inputs: Any, targets: Any) -> Tensor:
        """One iteration on a batch, up to the optimizer's step: gradients as one process would have them.

        Every rank is given the whole batch, rows first. The loss is the mean over all rows, on every rank.
        """
        iteration = self._iteration(self._step, inputs, targets, "step")
        self._step += 1
        self._profiled.begin(iteration)
        loss = self._run(self._executor, iteration)
        self._has_run = True
        self._profiled.finish()
        return loss

    def evaluate(self, inputs: Any, targets: Any) -> Tensor:
        """The loss of a batch, the mean over all rows, on every rank: in eval mode, without gradients.

        Every rank is given the whole batch, as for a step.
        """
        iteration = self._iteration(max(0, self._step - 1), inputs, targets, "evaluate")
        with eval_mode(self._model):
            return self._run(self._evaluator, iteration)

    def clip_grad_norm(self, max_norm: float, norm_type: float = 2.0, *, error_if_nonfinite: bool = False) -> Tensor:
        """Scale all gradients of the model so that their norm is at most this; gives the norm before.

        Between `step` and the optimizer's step, on every rank; as `torch.nn.utils.clip_grad_norm_` in one process.
        """
        with self._watch.failing():
            total = self._clipping.norm(norm_type)
        clip(list(self.named_parameters().values()), total, max_norm, strict=error_if_nonfinite)
        return total

    def save(self, folder: str | Path, *, extra: Any = None, keep: int | None = DEFAULT_KEEP) -> Path:
        """Save a checkpoint in a folder of checkpoints, of which the last `keep` stay (None: all); gives its path.

        All ranks together, between an optimizer's step and the next iteration. It has the model, its optimizers, the
        random state, the number of the next step, and `extra` as rank 0 gives it, such as a scheduler's state_dict().
        Gradients are not in it. The folder must be the same for all ranks.
        """
        self._require_values()
        return self._checkpoints.save(Path(folder), step=self._step, seed=self._seed, extra=extra, keep=keep)

    def load(self, folder: str | Path, *, step: int | None = None, optimizer: bool = True) -> Loaded:
        """Load the checkpoint that was saved last, or that of a step; saved under this plan or any other.

        All ranks together. Optimizers must have been made by then, unless `optimizer` is False: then theirs is left.
        """
        # What is still on its way must not come on top of what is loaded.
        with self._watch.failing():
            self._returns.finish_all()
        loaded = self._checkpoints.load(Path(folder), step=step, with_optimizers=optimizer)
        self._returns.note()
        self._step, self._seed, self._lacks_values = loaded.step, loaded.seed, False
        for runner in self._runners.values():
            runner.reseed(loaded.seed)
        return loaded

    def _require_values(self) -> None:
        if self._lacks_values:
            raise InputError(
                'the model has no values yet: the pipeline was made with init="checkpoint"',
                hint="Call pipe.load(folder) first.",
            )

    def close(self) -> None:
        """Wait until everything that was sent has arrived; before the process group is destroyed."""
        with self._watch.failing():
            self._returns.finish_all()
        self._mail.close()
        self._watch.close()

    def _iteration(self, step: int, inputs: Any, targets: Any, purpose: str) -> Iteration:
        self._require_values()
        num_rows = count_rows(inputs, targets)
        # Messages of another purpose have another form: evaluation wants no gradients.
        form = (purpose, *signature(inputs, targets))
        return Iteration(step, inputs, targets, num_rows, self._layout.rows(num_rows), form, self._device)

    def _run(self, executor: Executor, iteration: Iteration) -> Tensor:
        self._at_work = executor
        with self._watch.failing():
            self._returns.check()
            self._shared_buffers.begin()
            self._same.begin(iteration)
            with untouched(self._device):
                executor.run(iteration, self._losses.sharing(iteration))
            self._shared_buffers.check()
            loss = self._losses.collect(iteration)
            self._same.finish()
            return loss
