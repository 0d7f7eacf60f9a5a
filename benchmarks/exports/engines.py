"""Target 1: three models for every engine: planned, exported, accepted by the engine, and imported again."""

import csv
import json
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import penstock
from benchmarks.exports.engine_checks import accept
from benchmarks.exports.penstock_command import penstock as run_penstock
from benchmarks.results import Result
from penstock.errors import InputError
from penstock.export import ENGINES, Export, export_plan, find_engine, import_plan, restrict, with_equal_orders
from penstock.plan import Plan
from penstock.planners import Problem, SearchSpace, order_plan
from penstock.profile import Profile, untied
from penstock.simulate import Evaluation, evaluate_costs

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt.py"
IMPORTED = ("megatron", "deepspeed", "torch")


class Row(NamedTuple):
    """A model on an engine."""

    model: str
    engine: str
    verdict: str
    predicted_s: float = 0.0
    unrestricted_s: float = 0.0
    approximations: int = 0
    round_trip: str = ""


def rows_of(*, quick: bool) -> Iterator[Row]:
    """Every model on every engine."""
    for name, profile, cluster in models(quick=quick):
        free = _plan(profile, cluster, None, quick=quick).timeline.iteration_s
        for engine in ENGINES:
            yield row_of(name, profile, cluster, engine, free, quick=quick)


def models(*, quick: bool) -> Iterator[tuple[str, Profile, penstock.Cluster]]:
    """The models, without tied parameters, and where they run."""
    cluster = penstock.load_cluster("4 x A100-80 @ 100 GB/s")
    for name, rows in (("gpt2-xl", 4), ("llama-3-8b", 1)):
        yield name, untied(penstock.load_profile(name, kinds=["A100-80"], micro_batch_size=rows)), cluster
    if quick:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt.json"
        run_penstock("profile", f"{EXAMPLE}:make_model", "-b", "4", "--threads", "1", "-o", str(path))
        profile = untied(penstock.load_profile(str(path)))
    yield "measured GPT", profile, penstock.load_cluster(f"2 x {profile.kinds[0]} @ 2 GB/s")


def row_of(name: str, profile: Profile, cluster: penstock.Cluster, engine: str, free_s: float, *, quick: bool) -> Row:
    """Plan a model for an engine, export it, ask the engine, and import it again."""
    try:
        evaluation = _plan(profile, cluster, engine, quick=quick)
        exported = export_plan(evaluation, profile, engine)
    except InputError as error:
        return Row(name, engine, f"refused: {str(error).splitlines()[1].strip()}")
    verdict = accept(engine, evaluation.costs.plan, exported.files)
    seconds = evaluation.timeline.iteration_s
    return Row(
        name,
        engine,
        verdict,
        seconds,
        free_s,
        len(exported.approximations),
        _round_trip(engine, evaluation, exported, profile, cluster),
    )


def _plan(profile: Profile, cluster: penstock.Cluster, engine: str | None, *, quick: bool) -> Evaluation:
    num, work = 16, 10 if quick else 100
    if engine is None:
        return penstock.evaluate(penstock.plan(profile, cluster, num, work=work), profile, cluster)
    limits = find_engine(engine).limits
    space = restrict(SearchSpace(replication=engine not in ("torchtitan", "automodel")), limits)
    plan = penstock.plan(profile, cluster, num, search_space=space, cuts=limits.cuts, work=work)
    solution = with_equal_orders(order_plan(plan, Problem(profile, cluster, num)))
    return evaluate_costs(solution.costs, program=solution.program)


def _round_trip(
    engine: str, evaluation: Evaluation, exported: Export, profile: Profile, cluster: penstock.Cluster
) -> str:
    if engine not in IMPORTED:
        return ""
    plan = evaluation.costs.plan
    with tempfile.TemporaryDirectory() as folder:
        text = describe(engine, exported.files, Path(folder), plan)
        found = import_plan(text, profile, cluster, plan.num_microbatches)
    again = penstock.evaluate(found, profile, cluster).timeline.iteration_s
    is_equal = found.stages == plan.stages and again == evaluation.timeline.iteration_s
    return "equal" if is_equal else "differs"


def describe(engine: str, files: Mapping[str, str], folder: Path, plan: Plan) -> str:
    """What the files state, in the form of `penstock compare --against`."""
    names = [row["device"] for row in csv.DictReader(files["ranks.csv"].splitlines())]
    keys = f"dp={plan.stages[0].num_replicas} devices={','.join(names)}"
    recomputed = [str(number) for number, stage in enumerate(plan.stages) if stage.recompute]
    if recomputed:
        keys += f" recompute={','.join(recomputed)}"
    if engine == "torch":
        for name, text in files.items():
            (folder / name).write_text(text)
        return f"torch:{folder}"
    if engine == "deepspeed":
        cuts = json.loads(files["partition.json"])["partitions"][-1]["cuts"]
        return f"deepspeed:{','.join(map(str, cuts))} {keys}"
    words = shlex.split(files["megatron.sh"], comments=True)
    value = {word: words[index + 1] for index, word in enumerate(words[:-1])}
    ranks = value["--pipeline-model-parallel-size"]
    return f"megatron:{value['--pipeline-model-parallel-layout']} pp={ranks} {keys}"


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| model | engine | verdict | predicted | cost of staying | approximations | round trip |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in rows:
        cost = f"{row.predicted_s / row.unrestricted_s - 1:.1%}" if row.unrestricted_s else ""
        seconds = f"{row.predicted_s:.4g} s" if row.predicted_s else ""
        cells = (row.model, row.engine, row.verdict, seconds, cost, str(row.approximations or ""), row.round_trip)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def check_engines(rows: list[Row]) -> Iterator[Result]:
    """The targets over all rows."""
    tested = [row for row in rows if row.verdict != "no package"]
    accepted = [row for row in tested if row.verdict == "accepted"]
    refused = [row for row in tested if row.verdict.startswith("refused: ")]
    yield Result(
        "models x engines: accepted by the engine's own code, or refused by name",
        f"{len(tested)} of {len(tested)}",
        f"{len(accepted)} accepted, {len(refused)} refused by name",
        len(accepted) + len(refused) == len(tested) and len(refused) <= 2,
    )
    imported = [row for row in rows if row.round_trip]
    equal = [row for row in imported if row.round_trip == "equal"]
    yield Result(
        "plan -> export -> import -> plan is equal",
        f"{len(imported)} of {len(imported)}",
        f"{len(equal)} of {len(imported)}",
        len(equal) == len(imported) > 0,
    )
