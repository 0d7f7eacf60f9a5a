"""The user's end: a model, a plan and a loss become a pipeline that trains."""

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.cluster.types import Cluster
from penstock.errors import InputError
from penstock.model.blocks import Block, Carry, find_blocks
from penstock.plan.pricing import price
from penstock.plan.types import Plan
from penstock.profile.types import Profile
from penstock.program.lowering import lower
from penstock.program.proof import Proof, prove
from penstock.runtime.addresses import Addresses
from penstock.runtime.carry import pack
from penstock.runtime.executor import Executor
from penstock.runtime.feeding import count_rows, signature
from penstock.runtime.holding import check_same, let_go
from penstock.runtime.iteration import Iteration
from penstock.runtime.layout import check_units, make_layout
from penstock.runtime.mail import Mail
from penstock.runtime.measured import gather_timeline
from penstock.runtime.neutral import neutral_cluster, neutral_profile
from penstock.runtime.reducing import make_groups
from penstock.runtime.reference import Loss
from penstock.runtime.returning import Returns
from penstock.runtime.stages import Stage
from penstock.schedules import schedule
from penstock.timeline.types import Timeline

DEFAULT_TIMEOUT_S = 120.0


class Pipeline:
    """A model that is trained by a plan, over the ranks of torch.distributed.

    Rank k works as the k-th device in use, in the order of the cluster. Every rank makes the same call, with the same
    model, and keeps only what it needs of it. Without `profile` and `cluster` the jobs are ordered as if all blocks
    took the same time.
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
    ) -> None:
        if not dist.is_initialized():
            raise InputError(
                "torch.distributed is not set up",
                hint="Call torch.distributed.init_process_group first, on every rank.",
            )
        found = find_blocks(model, blocks, inputs)
        check_units(plan, found)
        self.proof = _prove(plan, found, profile, cluster)
        self._layout = make_layout(self.proof.costs, found)
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        if self._world < len(self._layout.devices):
            raise InputError(
                f"the plan uses {len(self._layout.devices)} devices, but there are only {self._world} ranks",
                hint=f"Start {len(self._layout.devices)} ranks, or plan for {self._world} devices.",
            )
        if any(item.is_meta for block in found for item in block.parameters.values()):
            raise InputError(
                "the model is on the meta device", hint="Make it on a real one: every rank frees what it does not need."
            )
        self._device = next((p.device for block in found for p in block.parameters.values()), torch.device("cpu"))
        self._group = group = dist.new_group(list(range(self._world)))
        check_same(found, self.proof.program, seed, group)
        groups = make_groups([item.ranks for item in self._layout.reducers], dist.new_group)
        self._step = 0
        self._stepped_s = (0.0, 0.0)
        self._mail = Mail(group, self._device, timeout_s)
        self._stages = self._make_stages(found, model, seed)
        let_go(model, [block for stage in self._stages.values() for block in stage.blocks])
        self._model = model
        actions = list(self.proof.program.actions(self._layout.devices[self._rank])) if self._is_used else []
        named = {name: item for stage in self._stages.values() for name, item in stage.trained.items()}
        reduced = {
            (item.is_tie, item.number): (one, [named[name] for name in item.parameters])
            for item, one in zip(self._layout.reducers, groups, strict=True)
            if self._rank in item.ranks
        }
        addresses = Addresses(self._layout, self._rank)
        self._executor = Executor(
            addresses, actions, self._stages, loss, self._mail, reduced, self._wait_for_parameters
        )
        self._returns = Returns(
            actions,
            {number: list(stage.trained.values()) for number, stage in self._stages.items()},
            self.named_parameters().values(),
            self._mail,
            addresses,
        )

    @property
    def _is_used(self) -> bool:
        return self._rank < len(self._layout.devices)

    def _make_stages(self, blocks: Sequence[Block], model: nn.Module, seed: int) -> dict[int, Stage]:
        return {
            number: Stage(
                blocks[segment.start : segment.stop],
                segment.start,
                model,
                seed=seed,
                is_split=len(segment.shares) > 1,
                device=self._device,
            )
            for number, segment in enumerate(self._layout.segments)
            if self._rank in (*segment.forward, *segment.backward)
        }

    def _wait_for_parameters(self, segment: int) -> None:
        self._returns.finish(segment)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that are trained on this rank, under the model's own names, in the model's order."""
        return {
            name: self._stages[number].trained[name]
            for number, segment in enumerate(self._layout.segments)
            if self._rank in segment.backward
            for name in self._stages[number].trained
        }

    def named_buffers(self) -> dict[str, Tensor]:
        """The buffers of segments whose forward runs on this rank, under the model's own names."""
        here = [
            block
            for number, segment in enumerate(self._layout.segments)
            if self._rank in segment.forward
            for block in self._stages[number].blocks
        ]
        return {name: buffer for block in here for name, buffer in block.buffers.items()}

    def optimizer(self, kind: type[torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
        """An optimizer of that kind for the parameters that are trained on this rank.

        After its step, parameters that are also used elsewhere go there.
        """
        parameters = list(self.named_parameters().values())
        # torch refuses an optimizer of nothing; this one never gets a gradient.
        made = kind(parameters or [nn.Parameter(torch.empty(0))], **options)
        made.register_step_pre_hook(lambda *_: self._stepping(begins=True))
        made.register_step_post_hook(lambda *_: self._stepping(begins=False))
        return made

    def _stepping(self, *, begins: bool) -> None:
        if begins:
            self._stepped_s = (perf_counter(), 0.0)
            return
        self._stepped_s = (self._stepped_s[0], perf_counter())
        self._returns.start(self._step - 1)

    def last_timeline(self) -> Timeline:
        """What happened when in the last iteration, on all ranks. Every rank must ask together."""
        spans = self._executor.spans_s()
        return gather_timeline(self.proof, self._layout.devices, spans, self._stepped_s, self._group)

    def step(self, inputs: Any, targets: Any) -> Tensor:
        """One iteration on a batch, up to the optimizer's step: gradients as one process would have them.

        Every rank is given the whole batch, rows first. The loss is the mean over all rows, on every rank.
        """
        num_rows = count_rows(inputs, targets)
        step, self._step = self._step, self._step + 1
        iteration = Iteration(step, inputs, targets, num_rows, self._layout.rows(num_rows), signature(inputs, targets))
        parts: dict[int, Tensor] = {}
        try:
            self._executor.run(iteration, lambda part: self._share_loss(iteration, part, parts))
            return self._collect_loss(iteration, parts)
        except BaseException:
            self._mail.give_up()
            raise

    def close(self) -> None:
        """Wait until everything that was sent has arrived; before the process group is destroyed."""
        self._returns.finish_all()
        self._mail.close()

    def _share_loss(self, iteration: Iteration, part: Tensor, parts: dict[int, Tensor]) -> None:
        parts[self._rank] = part
        for peer in range(self._world):
            if peer != self._rank:
                tell = _telling("sends its loss", self._rank, peer, iteration.step)
                self._mail.send(pack(part)[0], peer, 0, iteration.signature, tell)

    def _collect_loss(self, iteration: Iteration, parts: Mapping[int, Tensor]) -> Tensor:
        last = self._layout.segments[-1]
        rows = iteration.rows[-1]
        owners = [rank for member, rank in enumerate(last.forward) if any(part[member].num for part in rows)]
        total: Tensor | None = None
        for rank in owners:
            if rank == self._rank:
                part = parts[rank]
            else:
                tell = _telling("waits for the loss", self._rank, rank, iteration.step)
                part = self._mail.expect(rank, 0, iteration.signature, tell).wait().tensors[0]
            total = part if total is None else total + part
        assert total is not None, "a batch has rows, so somebody has a loss"
        return total


def _telling(what: str, rank: int, peer: int, step: int) -> Any:
    return lambda: f"rank {rank}, step {step}, {what} (with rank {peer})"


def _prove(plan: Plan, blocks: Sequence[Block], profile: Profile | None, cluster: Cluster | None) -> Proof:
    if (profile is None) != (cluster is None):
        raise InputError(
            "a profile and a cluster go together", hint="Give both that the plan was made for, or neither."
        )
    if profile is None or cluster is None:
        costs = price(plan, neutral_profile(blocks, plan.rows), neutral_cluster(plan), strict=False)
    else:
        costs = price(plan, profile, cluster)
    return prove(lower(schedule(costs), costs), costs, within_memory=profile is not None)
