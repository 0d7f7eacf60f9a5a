"""Bad input gets one clear message with what, where and what to do; exit code 2; no traceback; nothing lost."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "tuple[int, str, str]"]

CLUSTER = "4 x RTX-3090 @ 12 GB/s"


def _refused(outcome: tuple[int, str, str], *said: str) -> None:
    code, out, err = outcome
    assert (code, out) == (2, ""), err
    assert err.count("error: ") == 1
    assert "Traceback" not in err
    for text in said:
        assert text in err, err


@pytest.fixture
def files(run: Run, tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / f"{name}.json" for name in ("profile", "plan", "program", "timeline")}
    assert run("profile", "gpt2", "--kind", "RTX-3090", "-o", str(paths["profile"]), "-q")[0] == 0
    words = ("--output", str(paths["plan"]), "--program", str(paths["program"]), "--timeline", str(paths["timeline"]))
    base = ("plan", "--planner", "balanced", "--profile", str(paths["profile"]))
    assert run(*base, "--cluster", CLUSTER, "-m", "3", *words, "-q")[0] == 0
    return paths


def _change(path: Path, change: Callable[[Any], None]) -> str:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    return str(path)


def test_missing_files(run: Run, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere.json")
    _refused(run("simulate", nowhere), "nowhere.json: no such file")
    _refused(run("check", nowhere), "no such file")
    _refused(run("cluster", str(tmp_path / "nowhere.toml")), "no such file")
    _refused(run("profile", nowhere), "neither a file nor a built-in model")
    _refused(run("simulate", str(tmp_path)), "a folder, not a file")


def test_broken_json_names_line_and_column(run: Run, files: dict[str, Path]) -> None:
    for name, verb in (("profile", "profile"), ("plan", "simulate"), ("program", "check")):
        lines = files[name].read_text().splitlines()
        lines[3] += "}"
        files[name].write_text("\n".join(lines))
        _refused(run(verb, str(files[name])), str(files[name]), "broken JSON", "line 4")


def test_broken_toml_names_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('hosts = 2\nkind = "T4\n')
    _refused(run("cluster", str(path)), "c.toml:2")


def test_unknown_and_missing_keys(run: Run, files: dict[str, Path]) -> None:
    def colour(value: Any) -> None:
        value["units"][3]["colour"] = "red"

    _refused(run("profile", _change(files["profile"], colour)), "$.units[3]", "colour")

    def headless(value: Any) -> None:
        del value["stages"][1]["forward"]

    _refused(run("simulate", _change(files["plan"], headless)), "$.stages[1]", "forward")


@pytest.mark.parametrize(("number", "said"), [(-1.0, "$.units[2].times[0]"), ("NaN", "broken JSON"), (1e999, "JSON")])
def test_negative_and_not_finite(run: Run, files: dict[str, Path], number: object, said: str) -> None:
    def change(value: Any) -> None:
        value["units"][2]["times"][0]["forward_s"] = float("nan") if number == "NaN" else number

    _refused(run("profile", _change(files["profile"], change)), said)


def test_clusters_that_cannot_be(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('hosts = 1\ndevices_per_host = 0\nkind = "T4"\ninside = "1 GB/s"\n')
    _refused(run("cluster", str(path)), "devices_per_host")
    link = '[[link]]\nfrom = "d0"\nto = "d9"\nwire = "1 GB/s"\n'
    path.write_text('hosts = 1\ndevices_per_host = 2\nkind = "T4"\ninside = "1 GB/s"\n' + link)
    _refused(run("cluster", str(path)), "d9", "link[0].to")
    path.write_text('hosts = 1\ndevices_per_host = 2\nkind = "T4"\ninside = "fast"\n')
    _refused(run("cluster", str(path)), "inside", "fast")
    path.write_text('hosts = 1\ndevices_per_hosts = 2\nkind = "T4"\ninside = "1 GB/s"\n')
    _refused(run("cluster", str(path)), "devices_per_hosts", "devices_per_host")


def test_asking_for_too_much(run: Run) -> None:
    base = ("plan", "--profile", "gpt2", "--cluster", CLUSTER)
    _refused(run(*base, "--pipeline-depth", "5"), "pipeline depth (5)", "number of devices (4)")
    _refused(
        run("plan", "--profile", "gpt2", "--cluster", "64 x T4 @ 1 GB/s", "--pipeline-depth", "30"),
        "number of layers (26)",
    )
    _refused(
        run(*base, "--planner", "balanced", "--chunks", "0", "--shape", "loop"),
        "number of stages per device (0) must be at least 1",
    )
    _refused(run(*base, "-m", "0"), "0")
    _refused(run(*base, "--micro-batch-size", "0"), "micro-batch size must be 1")
    _refused(run(*base, "--planner", "best"), "unknown planner 'best'", "balanced")
    _refused(run(*base, "--schedule", "2f2b"), "unknown schedule '2f2b'", "1f1b")
    _refused(run("plan", "--profile", "gpt2"), "--cluster")


def test_a_cycle_in_a_graph(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    node = "node{} -- Linear -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=1\n"
    path.write_text(node.format(1) + node.format(2) + "\tnode1 -- node2\n\tnode2 -- node1\n")
    _refused(run("profile", str(path)), "g.txt", "cycle", "node1")


def test_plan_for_another_problem(run: Run, files: dict[str, Path]) -> None:
    _refused(run("simulate", str(files["plan"]), "--profile", "vgg16"), "covers 26 layers", "vgg16")
    _refused(run("simulate", str(files["plan"]), "--cluster", "2 x T4 @ 1 GB/s"), "another cluster")
    _refused(run("simulate", str(files["plan"]), "--cluster", "2 x T4 @ 1 GB/s", "--force"), "device 'd2'")


def test_memory_nobody_can_meet(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('hosts = 1\ndevices_per_host = 2\nkind = "T4"\nmemory = "1 MB"\ninside = "1 GB/s"\n')
    out = tmp_path / "plan.json"
    words = ("plan", "--planner", "balanced", "--profile", "gpt2", "--cluster", str(path), "-o", str(out))
    _refused(run(*words), "d0 needs", "more than the 1.00 MB it has", "weights", "--recompute")
    assert not out.exists()


def test_wrong_kind_of_file(run: Run, files: dict[str, Path]) -> None:
    _refused(run("simulate", str(files["timeline"])), "neither a plan nor a program")
    _refused(run("profile", str(files["plan"])), "penstock.profile/2", "plan file")


def test_a_file_that_cannot_be_written_loses_nothing(run: Run, tmp_path: Path) -> None:
    _refused(run("profile", "gpt2", "-o", str(tmp_path / "no" / "folder" / "p.json")), "cannot be written")
    assert list(tmp_path.iterdir()) == []


def test_whole_process_without_torch_or_traceback(tmp_path: Path) -> None:
    penstock = str(Path(sys.executable).with_name("penstock"))
    found = subprocess.run([penstock, "simulate", str(tmp_path / "x")], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.startswith("error: ")
    code = (
        "import sys, penstock\n"
        "from penstock.cli.main import main\n"
        f"sys.argv = ['penstock', 'plan', '--profile', 'gpt2', '--cluster', {CLUSTER!r}, '--work', '0', '-q']\n"
        "try:\n    main()\nexcept SystemExit as e:\n    assert not e.code, e.code\n"
        "assert 'numba' in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    code = (
        "import sys\nfrom penstock.cli.main import main\nsys.argv = ['penstock', '--help']\n"
        "try:\n    main()\nexcept SystemExit as e:\n    assert not e.code, e.code\n"
        "assert not {'torch', 'numba', 'rich', 'numpy'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_outputs_do_not_eat_inputs_or_each_other(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    cluster = tmp_path / "c.toml"
    text = 'hosts = 1\ndevices_per_host = 2\nkind = "RTX-3090"\ninside = "1 GB/s"\n'
    cluster.write_text(text)
    base = ("plan", "--planner", "balanced", "--profile", str(files["profile"]), "--cluster", str(cluster), "-m", "2")
    _refused(run(*base, "-o", str(cluster)), "is an input of this command")
    _refused(run(*base, "-o", str(files["profile"])), "is an input of this command")
    _refused(run(*base, "-o", str(tmp_path / "a"), "--trace", str(tmp_path / "." / "a")), "is written twice")
    _refused(run(*base, "-o", ""), "empty")
    _refused(run("simulate", str(files["plan"]), "-o", str(files["plan"])), "is an input of this command")
    assert cluster.read_text() == text
    # All results or none.
    _refused(
        run(*base, "-o", str(tmp_path / "b.json"), "--trace", str(tmp_path / "no" / "t.json")), "cannot be written"
    )
    assert not (tmp_path / "b.json").exists()


def test_links_are_followed_and_devices_written_to(run: Run, tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    assert run("profile", "gpt2", "-o", str(link), "-q")[0] == 0
    assert link.is_symlink()
    assert real.read_text().startswith("{")
    assert run("profile", "gpt2", "-o", "/dev/null", "-q")[0] == 0
    assert Path("/dev/null").is_char_device()


def test_options_without_effect_are_refused(run: Run, files: dict[str, Path]) -> None:
    _refused(run("profile", "--micro-batch-size", "4"), "--micro-batch-size")
    _refused(run("profile", "-o", "x.json"), "--output")
    _refused(run("check", str(files["plan"]), "--micro-batch-size", "4"), "--micro-batch-size")
    _refused(run("profile", str(files["profile"]), "--kind", "T4"), "already names its device kinds")
    _refused(run("profile", str(files["profile"]), "--precision", "fp32"), "precision")


def test_too_large(run: Run) -> None:
    _refused(run("plan", "--profile", "gpt2", "--cluster", "65536 x H100 @ 1 GB/s", "-m", "1"), "exceeds the limit")
    for planner, message in (
        ("auto", "number of micro-batches (65,536) times number of devices (256) must be at most 4,000,000"),
        ("data_parallel", "number of forwards (65,536 micro-batches x 256 replicas) exceeds the limit of 10,000,000"),
    ):
        words = ("plan", "--profile", "gpt2", "--cluster", "256 x T4 @ 1 GB/s", "-m", "65536", "--planner", planner)
        _refused(run(*words), message)


def test_a_plan_from_another_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("c.toml").write_text('hosts = 1\ndevices_per_host = 2\nkind = "T4"\ninside = "1 GB/s"\n')
    words = ("plan", "--planner", "balanced", "--profile", "gpt2", "--cluster", "c.toml", "-m", "2")
    assert run(*words, "-o", "plan.json", "-q")[0] == 0
    monkeypatch.chdir(tmp_path)
    assert run("check", "work/plan.json", "-q")[0] == 0
    Path("work/c.toml").unlink()
    _refused(run("check", "work/plan.json"), "c.toml", "work/plan.json names it as its cluster", "--cluster")
    outcome = run("check", "work/plan.json", "--cluster", "2 x L4 @ 1 GB/s")
    _refused(outcome, "made for another cluster")


def test_bare_command_shows_help_once(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (2, "")
    assert out.count("Usage:") == 1


def test_a_reader_that_goes_away_is_no_error() -> None:
    penstock = str(Path(sys.executable).with_name("penstock"))
    found = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {penstock} profile gpt2 | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    found = subprocess.run(
        ["bash", "-c", f"{penstock} profile gpt2 > /dev/full"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert found.stderr.startswith("error: cannot write the output")


def test_a_plan_that_was_saved_without_its_sources(run: Run, files: dict[str, Path]) -> None:
    def forget(value: Any) -> None:
        del value["profile"]["source"], value["cluster"]["source"]

    path = _change(files["plan"], forget)
    said = "the file does not name its profile and its cluster\n  Save what it was planned for, and pass it "
    _refused(run("simulate", path), said + "with --profile and --cluster.")
    said = "the file does not name its cluster\n"
    _refused(run("simulate", path, "--profile", str(files["profile"])), said)
    given = ("--profile", str(files["profile"]), "--cluster", CLUSTER)
    assert run("simulate", path, *given)[0] == 0


def test_what_is_not_a_number(run: Run) -> None:
    _refused(run("train", "x.py", "--plan", "plan.json", "--lr", "abc"), "'--lr': 'abc' is not a number.")
    _refused(run("train", "x.py", "--plan", "plan.json", "--steps", "1.5"), "'--steps': '1.5' is not an integer.")


def test_what_to_do_about_memory_is_what_can_be_done(run: Run, tmp_path: Path) -> None:
    """A check has no option to recompute, and neither has the planner auto: the way is to plan again."""
    plan = str(tmp_path / "plan.json")
    words = ("plan", "--profile", "gpt2", "--micro-batch-size", "64", "--cluster", "2 x RTX-3090 @ 12 GB/s", "-m", "8")
    assert run(*words, "--planner", "uniform", "--schedule", "gpipe", "--ignore-memory", "-o", plan, "-q")[0] == 0
    code, _, err = run("check", plan)
    assert code == 1
    assert "Plan again: for more devices, with a smaller micro-batch size" in err
    assert "--" not in err.partition("Plan again")[2]
    _, _, err = run(*words, "--planner", "uniform", "--schedule", "gpipe")
    advised = re.findall(r"^  with (--[^(\n]*?) it fits", err, re.MULTILINE)
    assert advised
    for options in advised:
        asked = options.split()
        kept = [*words[:3], *words[5:7]] if "--micro-batch-size" in asked else words
        given = [] if "--schedule" in asked else ["--schedule", "gpipe"]
        assert run(*kept, "--planner", "uniform", *given, *asked, "-q")[0] == 0, options
