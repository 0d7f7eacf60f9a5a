"""penstock cluster: show, import and the words around a probe."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cluster.toml.reader import read_cluster
from tests.support.topology_texts import DGX_A100, NCCL_SWITCHED, SLURM_TREE, V100_CUBE

Run = Callable[..., "tuple[int, str, str]"]

OLD = """
hosts = 1
devices_per_host = 2
kind = "T4"
inside = "1 GB/s, 5 us"
[probe]
date = 2020-01-01T00:00:00Z
backend = "gloo"
residuals = [[0.0, 0.01], [0.25, 0.0]]
"""


def test_the_verbs(run: Run) -> None:
    code, out, _ = run("cluster", "--help")
    assert code == 0
    for name in ("show", "probe", "import"):
        assert f"\n  {name} " in out
    assert run("cluster")[0] == 2
    assert run("cluster", "show", "2 x T4 @ 1 GB/s")[1] == run("cluster", "2 x T4 @ 1 GB/s")[1]


@pytest.mark.parametrize(
    ("declared", "interface"),
    [
        ("hosts = 1\n", "-"),
        ("hosts = 2\n", "one per device"),
        ('hosts = 2\nshared_interface = "3 GB/s"\n', "shared, 3.00 GB/s"),
        ("hosts = 2\nshared_interface = true\n", "shared, 2.00 GB/s"),
        ("hosts = 2\nshared_interface = false\n", "one per device"),
    ],
)
def test_the_interface_of_a_host(run: Run, tmp_path: Path, declared: str, interface: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(declared + 'devices_per_host = 2\nkind = "T4"\ninside = "8 GB/s, 5 us"\nbetween = "2 GB/s"\n')
    _, out, _ = run("cluster", str(path))
    (row,) = (line for line in out.splitlines() if " x T4 " in line)
    assert re.split(r"\s{2,}", row.strip())[-1] == interface


def test_a_verb_that_is_misspelt(run: Run) -> None:
    code, _, err = run("cluster", "prob")
    assert code == 2
    assert "Did you mean 'probe'?" in err
    assert "no such file" in run("cluster", "missing.toml")[2]


def test_import(run: Run, tmp_path: Path) -> None:
    text, made = tmp_path / "topo.txt", tmp_path / "made.toml"
    text.write_text(DGX_A100)
    code, out, err = run("cluster", "import", str(text), "--kind", "A100-40", "-o", str(made))
    assert (code, err) == (0, "")
    assert "topo: 4 devices on 1 host" in out
    assert out.rstrip().endswith(f'next: penstock plan --profile gpt2-xl --cluster "{made}"')
    assert read_cluster(made).hosts[0].inside.bandwidth == 240e9
    words = ("--link", "NV12=100GB/s", "--hosts", "2", "--between", "5 GB/s", "--json")
    code, out, _ = run("cluster", "import", str(text), *words)
    found = json.loads(out)
    assert (len(found["devices"]), found["between"]["bandwidth"]) == (8, 5e9)
    assert found["hosts"][0]["inside"]["bandwidth"] == 100e9
    assert "probed" not in found


def test_what_to_do_next_fits_the_devices(run: Run, tmp_path: Path) -> None:
    text, made = tmp_path / "topo.txt", tmp_path / "made.toml"
    text.write_text(DGX_A100)
    # Nobody has said which GPUs these are.
    out = run("cluster", "import", str(text), "-o", str(made))[1]
    assert out.rstrip().splitlines()[-1] == "next: repeat with --kind, such as --kind A100-40"
    out = run("cluster", "2 x cpu-2-threads @ 1 GB/s")[1]
    assert out.rstrip().splitlines()[-1] == (
        "next: penstock profile script.py:make_model --threads 2 -o profile.json, then "
        'penstock plan --profile profile.json --cluster "2 x cpu-2-threads @ 1 GB/s"'
    )


def test_wires_of_a_host_are_shown_as_a_range(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "topo.txt"
    text.write_text(V100_CUBE)
    out = run("cluster", "import", str(text), "--kind", "V100-16")[1]
    assert "  10.0 GB/s to 40.0 GB/s  " in out


def test_a_csv_file_is_told_what_is_wrong_with_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(',a.0,a.1\na.0,,"25 GB/s, 5 us"\na.1,10,\n')
    code, _, err = run("cluster", "import", str(path))
    assert code == 2
    assert "bad.csv:3, column 2: '10' has no unit" in err
    path.write_text("a\n")
    assert "the file has no matrix" in run("cluster", "import", str(path))[2]


def test_import_from_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(NCCL_SWITCHED.encode())))
    code, out, _ = run("cluster", "import", "-")
    assert code == 0
    assert "imported: 3 devices" in out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    assert "not UTF-8" in run("cluster", "import", "-")[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "csv"), "rows and columns"),
        (("--hosts", "2"), "--hosts does not apply to Slurm"),
        (("--link", "SW1"), "must be CLASS=WIRE"),
        (("--between", "fast"), "--between: 'fast' is not a quantity"),
        (("--nodes", "node["), "--nodes: 'node[' is not a host list"),
    ],
)
def test_import_refuses(run: Run, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    text = tmp_path / "topology.conf"
    text.write_text(SLURM_TREE)
    code, out, err = run("cluster", "import", str(text), *words)
    assert (code, out) == (2, "")
    assert message in err


def test_old_clusters_are_warned_of(run: Run, tmp_path: Path) -> None:
    path, plan = tmp_path / "old.toml", tmp_path / "plan.json"
    path.write_text(OLD)
    warning = "warning: cluster old was measured "
    code, out, err = run("cluster", str(path))
    assert code == 0
    assert warning in err
    assert "measured 2020-01-01 00:00 UTC with gloo; residuals of the fit: median 13.0 %, worst link 25.0 %" in out
    words = ("--profile", "gpt2", "--cluster", str(path), "-m", "2")
    assert warning in run("plan", *words, "--planner", "balanced", "-o", str(plan), "-q")[2]
    assert warning in run("simulate", str(plan), "-q")[2]
    assert warning in run("check", str(plan), "-q")[2]
    assert warning in run("compare", *words, "--planners", "balanced", "--schedules", "1f1b", "-q")[2]


def test_probe_says_what_it_needs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    code, _, err = run("cluster", "probe")
    assert code == 2
    assert "RANK is not set" in err
    assert "--local 2" in err
    for text in ("x", "1", "65", ""):
        code, _, err = run("cluster", "probe", "--local", text)
        assert code == 2
        assert f"{text!r} is not a valid number of processes. Use a number from 2 to 64" in err
    code, _, err = run("cluster", "probe", "--local", "2", "-o", "/no such folder/found.toml")
    assert code == 2
    assert "no such folder" in err
