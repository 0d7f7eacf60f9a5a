"""penstock report: from files of every sort to one page."""

import json
from pathlib import Path

import pytest

import penstock
from penstock.timeline.build import build_timeline
from tests.support.command_line import Run

CLUSTER = "2 x T4 @ 10 GB/s"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A plan, its program, its timeline, and a run of it, which took half as long again."""
    folder = tmp_path_factory.mktemp("files")
    profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=2)
    cluster = penstock.load_cluster(CLUSTER)
    plan = penstock.plan(
        profile, cluster, 4, planner="balanced", schedule="1f1b",
        profile_source="gpt2 --kind T4 --micro-batch-size 2", cluster_source=CLUSTER,
    )  # fmt: skip
    found = penstock.evaluate(plan, profile, cluster)
    measured = build_timeline(found.proof, found.timeline.start_s * 1.5, found.timeline.end_s * 1.5, "measured")
    unknown = penstock.plan(profile, cluster, 4, planner="uniform")
    paths = {name: folder / f"{name}.json" for name in ("plan", "program", "timeline", "measured", "lost")}
    penstock.save_plan(plan, paths["plan"])
    penstock.save_program(found.program, paths["program"])
    penstock.save_timeline(found.timeline, paths["timeline"])
    penstock.save_timeline(measured, paths["measured"])
    penstock.save_timeline(penstock.evaluate(unknown, profile, cluster).timeline, paths["lost"])
    return paths


def content(path: Path) -> dict[str, list[dict[str, object]]]:
    text = path.read_text().partition('id="data">')[2].partition("</script>")[0]
    found: dict[str, list[dict[str, object]]] = json.loads(text)
    return found


@pytest.mark.parametrize("kind", ["plan", "program", "timeline"])
def test_every_sort_of_file(run: Run, files: dict[str, Path], tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.html"
    done = run("report", str(files[kind]), "-o", str(out))
    assert done.code == 0, done.err
    assert "simulated: " in done.out
    assert "An iteration of gpt2 on 2 devices" in done.out
    assert "The most effective changes" in done.out
    assert f"wrote {out}" in done.out
    assert [subject["name"] for subject in content(out)["subjects"]] == [f"{kind}: balanced + 1f1b"]


def test_a_measured_timeline_comes_with_its_prediction(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    done = run("report", str(files["measured"]), "-o", str(out), "--no-baselines")
    assert done.code == 0, done.err
    found = content(out)
    # What was named comes first, and is what the page opens on.
    assert [subject["name"] for subject in found["subjects"]] == [
        "measured: balanced + 1f1b",
        "prediction for measured.json",
    ]
    assert [subject["origin"] for subject in found["subjects"]] == ["measured", "simulated"]
    assert len(found["pairs"]) == 1
    assert not any(found["problems"])
    # With the plan beside it, nothing is there twice.
    run("report", str(files["plan"]), str(files["measured"]), "-o", str(out), "--no-baselines")
    found = content(out)
    assert [subject["origin"] for subject in found["subjects"]] == ["simulated", "measured"]
    assert len(found["pairs"]) == 1
    # Two runs of one program have one prediction.
    run("report", str(files["measured"]), str(files["measured"]), "-o", str(out), "--no-baselines")
    found = content(out)
    assert [subject["origin"] for subject in found["subjects"]] == ["measured", "simulated", "measured"]
    assert [(pair["predicted"], pair["measured"]) for pair in found["pairs"]] == [(1, 0), (1, 2)]


def test_machines_get_figures_and_words(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    done = run("report", str(files["plan"]), str(files["lost"]), "-o", str(out), "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["num_bytes"] == out.stat().st_size
    first, second = found["timelines"]
    assert first["words"][0].startswith("An iteration of gpt2")
    assert first["helps"][0]["seconds"] < first["iteration_s"]
    assert second["bound_s"] is None
    assert "different models" not in done.err
    assert "shown without links, limits and prediction" in done.err


def test_what_cannot_be_shown_is_refused(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    other = tmp_path / "trace.json"
    other.write_text('{"traceEvents": []}')
    done = run("report", str(other), "-o", str(out))
    assert done.code == 2
    assert "neither a plan nor a program nor a timeline" in done.err
    for name, text in (("notes.txt", "# notes"), ("cluster.toml", "hosts = 2\n"), ("list.json", "[1]")):
        path = tmp_path / name
        path.write_text(text)
        done = run("report", str(path), "-o", str(out))
        assert done.code == 2
        assert f"{name}: this is neither a plan nor a program nor a timeline: it is not a JSON object" in done.err
        assert "a timeline by `simulate -o`, `train -o` or `emulate -o`" in done.err
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": "penstock.plan/3",')
    assert "broken JSON" in run("report", str(broken), "-o", str(out)).err
    assert run("report", str(tmp_path / "none.json"), "-o", str(out)).code == 2
    assert run("report").code == 2
    done = run("report", str(files["plan"]), "-o", str(files["plan"]))
    assert done.code == 2
    assert "is an input of this command" in done.err
    done = run("report", str(files["plan"]), "-o", str(tmp_path / "no" / "such" / "out.html"))
    assert done.code == 2
    assert f"the folder '{tmp_path}/no/such' does not exist" in done.err
    assert f"mkdir -p {tmp_path}/no/such" in done.err
    assert not out.exists()


def test_another_cluster(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    words = ("report", str(files["plan"]), "-o", str(out), "--cluster", "2 x T4 @ 1 GB/s")
    assert run(*words).code == 2
    done = run(*words, "--force")
    assert done.code == 0, done.err
    assert content(out)["clusters"][0]["name"] == "2 x T4 @ 1 GB/s"


def test_different_problems_come_with_a_warning(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    out, other = tmp_path / "out.html", tmp_path / "other.json"
    text = "4 x A100-40 @ 100 GB/s"
    done = run("plan", "--profile", "vgg16", "--cluster", text, "-m", "2", "--planner", "balanced", "-o", str(other))
    assert done.code == 0, done.err
    done = run("report", str(files["measured"]), str(other), "-o", str(out))
    assert done.code == 0, done.err
    assert f"for different models or clusters: gpt2 on {CLUSTER}; vgg16 on {text}" in " ".join(done.err.split())
    found = content(out)
    names = [str(subject["name"]) for subject in found["subjects"]]
    assert names[:2] == [
        f"measured: balanced + 1f1b, gpt2 on {CLUSTER}",
        f"prediction for measured.json, gpt2 on {CLUSTER}",
    ]
    assert names[2].endswith(f", vgg16 on {text}")
    assert [subject["task"] for subject in found["subjects"]] == [0, 0, 1]
    # Of the measured one nothing is said about the bound, which is for predicted times.
    assert done.out.count("no plan can be faster than") == 2
