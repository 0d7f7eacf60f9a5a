"""Iteration times of all ways to train a workload, measured in turns in the same two processes."""

import statistics
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

import penstock
from benchmarks.runtime import rank_functions
from benchmarks.runtime.contenders import NUM_STAGES, TORCH_KINDS, PenstockPlan, TorchPlan
from benchmarks.runtime.machine_profile import measure_machine
from benchmarks.runtime.measurements import SINGLE_PROCESS, SINGLE_PROCESS_WHOLE_BATCH, Row, SpeedRun
from benchmarks.runtime.plans import AUTO, EQUAL_1F1B, ONE_SET, VARIANTS, Option, our_options, same_work
from benchmarks.runtime.prediction_errors import explain
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.stage_cuts import MAX_TRIED, best_cuts, cuts_by_evenness, equal_cuts
from benchmarks.runtime.workloads import Workload
from penstock import Cluster, Profile
from penstock.simulate import predict

RANKS_OF_STAGES = {"interleaved zb1p": (0, 1, 0, 1), "zbv": (0, 1, 1, 0)}
Log = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """The extent of the measurements."""

    rounds: int
    profile_s: float
    kinds: tuple[str, ...]
    """The schedules of torch to measure."""
    tries: int
    """Iterations for each choice of cuts; 0 for equal layers only."""
    options: tuple[str, ...] = ()
    """The plans of Penstock to measure; all if empty."""
    duels: int = 0
    """More rounds of `auto` against torch's best, and of two sets of cuts against one: to resolve 1 % takes many."""


FULL = Effort(rounds=5, profile_s=25.0, kinds=TORCH_KINDS, tries=2, duels=16)
FEW = Effort(rounds=5, profile_s=25.0, kinds=("1f1b",), tries=0)
LONG = Effort(rounds=4, profile_s=25.0, kinds=("1f1b",), tries=0, options=(AUTO, EQUAL_1F1B))
HEAVY = Effort(rounds=4, profile_s=15.0, kinds=("1f1b",), tries=0, options=(AUTO, EQUAL_1F1B, *VARIANTS), duels=12)
QUICK = Effort(rounds=2, profile_s=1.0, kinds=("1f1b",), tries=0, options=(AUTO, EQUAL_1F1B, *VARIANTS), duels=2)


@dataclass(frozen=True)
class Entry:
    """A contender before it is built."""

    name: str
    detail: str
    spec: PenstockPlan | TorchPlan | int
    option: Option | None = None


def run_speed(workload: Workload, num_microbatches: int, effort: Effort, log: Log) -> SpeedRun:
    """Measure all contenders."""
    with Ranks() as ranks:
        profile, cluster = measure_machine(ranks, workload, effort.profile_s)
        layers = partial(equal_cuts, profile.num_units, num_ends=int(workload.is_tokens))
        options = our_options(profile, cluster, num_microbatches, layers(num_stages=2))
        options = [item for item in options if not effort.options or item.name in effort.options]
        twins = same_work(options)
        entries = [Entry(SINGLE_PROCESS, "", num_microbatches)]
        if workload.has_full_baseline:
            entries.append(Entry(SINGLE_PROCESS_WHOLE_BATCH, "", 1))
        entries += [
            Entry(item.name, item.detail, PenstockPlan(item.plan, profile, cluster), item)
            for item in options
            if item.name not in twins
        ]
        for kind in effort.kinds:
            cuts = layers(num_stages=NUM_STAGES[kind])
            entries.append(_torch_entry(f"torch: {kind}, equal layers", kind, num_microbatches, cuts))
            if effort.tries:
                log(f"  trying all cuts of torch's {kind}")
                best = search_cuts(ranks, workload, num_microbatches, kind, profile, effort.tries)
                if best != cuts:
                    entries.append(_torch_entry(f"torch: {kind}, best cuts", kind, num_microbatches, best))
        losses = {entry.name: build_entry(ranks, workload, num_microbatches, entry) for entry in entries}
        turns: dict[str, list[float]] = {entry.name: [] for entry in entries}
        limit: list[float] = []
        for number in range(effort.rounds):
            log(f"  round {number + 1} of {effort.rounds}")
            for entry in entries:
                turns[entry.name].append(_turn(ranks, workload, num_microbatches, entry))
            side_by_side = ranks.on_all(
                rank_functions.run, SINGLE_PROCESS, workload, num_microbatches, workload.steps, True
            )
            limit.append(sum(turns[SINGLE_PROCESS][-1] / seconds for seconds in side_by_side))
        named = {entry.name: entry for entry in entries}
        torchs = [entry.name for entry in entries if isinstance(entry.spec, TorchPlan)]
        baseline = min(torchs, key=lambda name: statistics.median(turns[name]))
        log(f"  auto against {baseline}")
        over_baseline = duel(ranks, workload, num_microbatches, (named[AUTO], named[baseline]), effort.duels)
        two_sets: tuple[float, ...] = ()
        if ONE_SET in named and any(item.name == AUTO and item.has_remote_backward for item in options):
            log("  two sets of cuts against one")
            two_sets = duel(ranks, workload, num_microbatches, (named[AUTO], named[ONE_SET]), effort.duels)
        over_variants: tuple[float, ...] = ()
        variants = [name for name in VARIANTS if name in named and effort.duels]
        if variants:
            fastest = min(variants, key=lambda name: statistics.median(turns[name]))
            log(f"  auto against {fastest}")
            over_variants = duel(ranks, workload, num_microbatches, (named[AUTO], named[fastest]), effort.duels)
        rows = []
        for entry in entries:
            row = Row(name=entry.name, detail=entry.detail, round_s=tuple(turns[entry.name]), losses=losses[entry.name])
            rows.append(_predicted(ranks, workload, row, entry, profile, cluster))
    rows += [_renamed(next(row for row in rows if row.name == same), name) for name, same in twins.items()]
    wire = cluster.hosts[0].inside
    link = f"messages between ranks: {wire.latency_s * 1e6:.0f} us and {wire.bandwidth / 1e9:.2f} GB/s"
    return SpeedRun(
        workload=workload.name,
        title=workload.title,
        num_microbatches=num_microbatches,
        rows=tuple(rows),
        limit=tuple(limit),
        two_sets=two_sets,
        over_baseline=over_baseline,
        over_variants=over_variants,
        notes=(f"profile: {profile.assumptions[0]}", link),
    )


def _renamed(row: Row, name: str) -> Row:
    """The row under the name of another option with the same plan."""
    from msgspec.structs import replace

    return replace(row, name=name, detail=f"as {row.name}")


def _torch_entry(name: str, kind: str, num_microbatches: int, cuts: tuple[int, ...]) -> Entry:
    return Entry(name, f"cut before {', '.join(map(str, cuts))}", TorchPlan(kind, num_microbatches, cuts))


def build_entry(ranks: Ranks, workload: Workload, num_microbatches: int, entry: Entry) -> tuple[float, ...]:
    """Build a contender on all ranks that need it; returns the losses of the first iterations."""
    spec = (rank_functions.build, entry.name, workload, num_microbatches, entry.spec)
    # Both ranks build the single-process training, which also runs on both at the same time.
    answers = ranks.on_all(*spec) if entry.name != SINGLE_PROCESS_WHOLE_BATCH else [ranks.on_first(*spec)]
    return next(tuple(losses) for losses in answers if None not in losses)


def _turn(ranks: Ranks, workload: Workload, num_microbatches: int, entry: Entry) -> float:
    spec = (rank_functions.run, entry.name, workload, num_microbatches, workload.steps)
    if isinstance(entry.spec, int):
        return float(ranks.on_first(*spec, False))
    return float(max(ranks.on_all(*spec, True)))


def duel(
    ranks: Ranks, workload: Workload, num_microbatches: int, pair: tuple[Entry, Entry], rounds: int
) -> tuple[float, ...]:
    """The speed-up of the first over the second, by round. The order alternates."""
    ratios = []
    for number in range(rounds):
        first, second = pair if number % 2 else reversed(pair)
        seconds = {entry.name: _turn(ranks, workload, num_microbatches, entry) for entry in (first, second)}
        ratios.append(seconds[pair[1].name] / seconds[pair[0].name])
    return tuple(ratios)


def search_cuts(
    ranks: Ranks, workload: Workload, num_microbatches: int, kind: str, profile: Profile, tries: int
) -> tuple[int, ...]:
    """The fastest cuts of one of torch's schedules among those tried."""

    def run(cuts: tuple[int, ...]) -> Generator[float, None, None]:
        name = "tried"
        ranks.on_all(rank_functions.try_out, name, workload, num_microbatches, TorchPlan(kind, num_microbatches, cuts))
        try:
            while True:
                yield max(ranks.on_all(rank_functions.run, name, workload, num_microbatches, 1, True))
        finally:
            ranks.on_all(rank_functions.drop, name)

    return best_cuts(candidates(profile, kind), tries, run)


def candidates(profile: Profile, kind: str) -> list[tuple[int, ...]]:
    """The cuts to try, the most balanced first: all for GPipe and 1F1B, some for the others."""
    cuts = cuts_by_evenness(profile, NUM_STAGES[kind], RANKS_OF_STAGES.get(kind, (0, 1)))
    return cuts if kind in ("gpipe", "1f1b") else cuts[:MAX_TRIED]


def _predicted(ranks: Ranks, workload: Workload, row: Row, entry: Entry, profile: Profile, cluster: Cluster) -> Row:
    """Add the prediction to the rows of Penstock."""
    if entry.option is None:
        return row
    from msgspec.structs import replace

    evaluation = penstock.evaluate(entry.option.plan, profile, cluster)
    interval = predict(evaluation.proof, profile).interval
    timeline = ranks.on_all(rank_functions.measured_timeline, entry.name, workload, entry.option.plan.num_microbatches)[
        0
    ]
    return replace(
        row,
        predicted_s=evaluation.timeline.iteration_s,
        interval_s=(interval.low_s, interval.high_s),
        has_remote_backward=entry.option.has_remote_backward,
        explained=explain(evaluation.timeline, timeline),
    )
