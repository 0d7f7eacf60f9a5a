"""Iteration times of Llama- and BERT-like models on two ranks: against the limit, and torch.distributed.pipelining.

The contenders run in turns in the same two processes, as in benchmarks/runtime: a single process, the same on both
ranks at once (which gives the limit), Penstock with the plan of `auto`, and torch's schedules. Their stages are cut by
hand (`hand_cut.py`), and by `torch.distributed.pipelining.pipeline` from the exported model, if that runs.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import penstock
from benchmarks.models.hand_cut import cut_by_hand
from benchmarks.models.small_configs import small_config
from benchmarks.results import Result
from benchmarks.runtime import rank_functions
from benchmarks.runtime.contenders import PenstockPlan, SingleProcess, make_optimizer
from benchmarks.runtime.machine_profile import measure_machine
from benchmarks.runtime.measurements import Spread, spread
from benchmarks.runtime.ranks import RankError, Ranks
from benchmarks.runtime.workloads import Workload

NUM_MICROBATCHES = 8
OF_LIMIT = 0.90
ONE, OURS = "one process", "ours: auto"
KINDS = ("gpipe", "1f1b")
"""Schedules of torch for one stage per rank."""


@dataclass(frozen=True)
class LanguageModel(Workload):
    """A model of transformers that is trained on tokens. `name` is its class."""

    def loss(self, output: Any, targets: Tensor) -> Tensor:
        """The mean over tokens."""
        # An exported model returns a tuple.
        logits = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _make(name: str, width: int, num_layers: int, vocabulary: int) -> Any:
    import transformers

    model_class = getattr(transformers, name)
    sizes = {"hidden_size": width, "num_hidden_layers": num_layers, "vocab_size": vocabulary, "use_cache": False}
    heads = {"num_attention_heads": max(1, width // 64), "max_position_embeddings": 256}
    own: dict[str, dict[str, Any]] = {
        "LlamaForCausalLM": {
            "intermediate_size": 3 * width,
            "num_key_value_heads": max(1, width // 64),
            "head_dim": 64,
        },
        "BertForMaskedLM": {
            "intermediate_size": 4 * width,
            "hidden_dropout_prob": 0.0,  # contenders draw differently
            "attention_probs_dropout_prob": 0.0,
        },
    }
    # torch has no all-reduce for tied weights.
    config = small_config(model_class.config_class, **sizes, **heads, **own[name], tie_word_embeddings=False)
    return model_class(config).train()


def make_llama() -> Any:
    """8 layers of width 512."""
    return _make("LlamaForCausalLM", 512, 8, 8192)


def make_bert() -> Any:
    """8 layers of width 512."""
    return _make("BertForMaskedLM", 512, 8, 8192)


def make_small_llama() -> Any:
    """4 layers of width 128."""
    return _make("LlamaForCausalLM", 128, 4, 512)


FULL = (
    LanguageModel("LlamaForCausalLM", "Llama, 8 layers of 512", make_llama, 4, (128,), 8192, 1, is_tokens=True),
    LanguageModel("BertForMaskedLM", "BERT, 8 layers of 512", make_bert, 4, (128,), 8192, 1, is_tokens=True),
)
QUICK = (
    LanguageModel("LlamaForCausalLM", "Llama, 4 layers of 128", make_small_llama, 4, (32,), 512, 2, is_tokens=True),
)
"""A quick run does not export the model, which takes longer than all else."""
LAYERS = {"LlamaForCausalLM": "model.layers", "BertForMaskedLM": "bert.encoder.layer"}


class PipelineTrainer:
    """Penstock's pipeline."""

    def __init__(self, workload: Workload, spec: PenstockPlan) -> None:
        inputs, _ = workload.batch(0, NUM_MICROBATCHES)
        self.pipe = penstock.Pipeline(
            workload.model(), spec.plan, workload.loss, profile=spec.profile, cluster=spec.cluster, inputs=inputs
        )
        self._optimizer = self.pipe.optimizer(torch.optim.AdamW, lr=1e-4)

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        self._optimizer.zero_grad()
        loss = self.pipe.step(inputs, targets)
        self._optimizer.step()
        return loss.item()


class TorchCut(NamedTuple):
    """A schedule of torch with two stages, cut before a layer."""

    schedule: str
    cut: int
    is_exported: bool
    """Whether torch cuts the exported model; otherwise the stages are written by hand."""

    @property
    def name(self) -> str:
        """For results."""
        how = "of the exported model" if self.is_exported else "by hand"
        return f"torch: {self.schedule}, cut {how} before layer {self.cut}"


class TorchTrainer:
    """torch.distributed.pipelining, with one stage per rank."""

    def __init__(self, workload: Workload, spec: TorchCut) -> None:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, SplitPoint, pipeline

        model: nn.Module = workload.model()
        inputs, _ = workload.batch(0, 1)
        self._rank = dist.get_rank()
        stage: Any
        if spec.is_exported:
            split = {f"{LAYERS[workload.name]}.{spec.cut}": SplitPoint.BEGINNING}
            parts = pipeline(model, mb_args=(inputs,), split_spec=split)
            module: nn.Module = parts.get_stage_module(self._rank)
            stage = parts.build_stage(self._rank, torch.device("cpu"))
        else:
            module = cut_by_hand(workload.name, model, spec.cut, self._rank)
            stage = PipelineStage(module, self._rank, 2, torch.device("cpu"))
        schedules: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
        self._schedule = schedules[spec.schedule](stage, NUM_MICROBATCHES, loss_fn=workload.loss)
        self._optimizer = make_optimizer(list(module.parameters()))

    def step(self, inputs: Tensor, targets: Tensor) -> float | None:
        self._optimizer.zero_grad()
        losses: list[Tensor] = []
        if self._rank:
            self._schedule.step(target=targets, losses=losses)
        else:
            self._schedule.step(inputs)
        self._optimizer.step()
        return sum(loss.item() for loss in losses) / len(losses) if losses else None


def build(memory: dict[str, Any], name: str, workload: Workload, spec: Any) -> list[float | None]:
    """Build a contender on this rank, and return the losses of its first iterations."""
    contender: Any
    if spec is None:
        contender = SingleProcess(workload, NUM_MICROBATCHES)
    elif isinstance(spec, PenstockPlan):
        contender = PipelineTrainer(workload, spec)
    else:
        contender = TorchTrainer(workload, spec)
    memory[name] = contender
    return [contender.step(*workload.batch(step, NUM_MICROBATCHES)) for step in range(2)]


@dataclass(frozen=True)
class Run:
    """The measurements of one model."""

    of_limit: Spread
    over_torch: Spread
    torch_name: str
    """The best contender of torch."""
    exported: str
    """Why torch does not run stages of the exported model; empty if it does, or was not tried."""
    loss_error: float


def measure_speed(workload: Workload, rounds: int, profile_s: float, cuts: tuple[int, ...], *, exports: bool) -> Run:
    """Measure all contenders in turns."""
    contenders = [TorchCut(kind, cut, False) for kind in KINDS for cut in cuts]
    failure = _failure_of_export(workload, cuts[0]) if exports else ""
    if exports and not failure:
        contenders += [spec._replace(is_exported=True) for spec in contenders]
    torchs = {spec.name: spec for spec in contenders}
    with Ranks() as ranks:
        profile, cluster = measure_machine(ranks, workload, profile_s)
        space = penstock.SearchSpace(replication=False)
        plan = penstock.plan(profile, cluster, NUM_MICROBATCHES, search_space=space)
        expected = ranks.on_all(build, ONE, workload, None)[0]
        found = [ranks.on_all(build, OURS, workload, PenstockPlan(plan, profile, cluster))[1]]
        found += [ranks.on_all(build, name, workload, spec)[1] for name, spec in torchs.items()]
        turns: dict[str, list[float]] = {name: [] for name in (ONE, OURS, *torchs)}
        limit = []
        for _ in range(rounds):
            for name, seconds in turns.items():
                seconds.append(_turn(ranks, workload, name, is_alone=name == ONE))
            both = ranks.on_all(rank_functions.run, ONE, workload, NUM_MICROBATCHES, workload.steps, True)
            limit.append(sum(turns[ONE][-1] / each for each in both))
    best = min(torchs, key=lambda name: statistics.median(turns[name]))
    return Run(
        spread([one / own / most for one, own, most in zip(turns[ONE], turns[OURS], limit, strict=True)]),
        spread([other / own for other, own in zip(turns[best], turns[OURS], strict=True)]),
        best,
        failure,
        max(abs(one - other) / abs(one) for losses in found for one, other in zip(expected, losses, strict=True)),
    )


def _failure_of_export(workload: Workload, cut: int) -> str:
    """Why torch does not run stages of the exported model; empty if it does. A failed rank is out of step."""
    try:
        with Ranks() as ranks:
            ranks.on_all(build, "tried", workload, TorchCut(KINDS[0], cut, True))
    except RankError as error:
        return " ".join(str(error).split()[:30])
    return ""


def _turn(ranks: Ranks, workload: Workload, name: str, *, is_alone: bool) -> float:
    spec = (rank_functions.run, name, workload, NUM_MICROBATCHES, workload.steps)
    return float(ranks.on_first(*spec, False)) if is_alone else float(max(ranks.on_all(*spec, True)))


def check_speed(*, quick: bool) -> Iterator[Result]:
    """The targets of both models."""
    for workload in QUICK if quick else FULL:
        cuts = (2,) if quick else (3, 4, 5)
        run = measure_speed(workload, 2 if quick else 12, 1.0 if quick else 25.0, cuts, exports=not quick)
        what = f"{workload.title}, M = {NUM_MICROBATCHES}"
        yield Result(f"{what}: losses as in one process", "<= 1e-05", f"{run.loss_error:.1e}", run.loss_error <= 1e-5)
        is_fast = run.of_limit.middle >= OF_LIMIT
        yield Result(f"{what}: speed-up as part of the limit", f">= {OF_LIMIT}", str(run.of_limit), is_fast, True)
        if run.exported:
            print(f"  {workload.title}: torch does not run stages of the exported model: {run.exported}")
        measured = f"{run.over_torch} ({run.torch_name})"
        is_faster = run.over_torch.middle > 1
        yield Result(f"{what}: over torch.distributed.pipelining", "> 1 x", measured, is_faster, True)
