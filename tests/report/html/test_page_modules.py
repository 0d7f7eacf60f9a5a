"""Tests of the page's modules in tests/js, run by node."""

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.program.actions import RECV_KINDS
from penstock.program.dependencies.messages import match_messages
from penstock.report.html.payload.report_data import page_data
from penstock.report.html.script_bundle import bundle_script
from penstock.report.subject import ReportSubject
from penstock.simulate.evaluation import evaluate_costs
from penstock.timeline.summary import critical_path
from tests.support.paths import REPOSITORY
from tests.support.reach import reaches
from tests.support.strategies import Case, cases, reach_features

FOLDER = REPOSITORY / "tests" / "js"


def _node() -> str:
    found = shutil.which("node")
    if found is None:
        assert not os.environ.get("CI"), "node is missing: sh scripts/browser.sh"
        pytest.skip("node is not installed: sh scripts/browser.sh")
    return found


def test_node_tests_pass() -> None:
    files = sorted(map(str, FOLDER.glob("*.test.mjs")))
    done = subprocess.run([_node(), "--test", *files], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "# fail 0" in done.stdout
    assert "# pass 0" not in done.stdout


def test_the_bundle_is_a_module(tmp_path: Path) -> None:
    path = tmp_path / "page.mjs"
    path.write_text(bundle_script())
    done = subprocess.run([_node(), "--check", str(path)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


# Lists of plans shrink slowly and print long; the message names the plan's actions anyway.
@reaches(several_stages=0.1, replicated=0.1, remote=0.1, recompute=0.1, split=0.1)
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.data())
def test_any_plan_can_be_drawn_and_described(data: st.DataObject) -> None:
    """The path and the dependencies are consistent, and no text or drawing has an invalid number."""
    pages = []
    for _ in range(8):
        case: Case = data.draw(cases())
        reach_features(case)
        result = evaluate_costs(case.costs)
        item = ReportSubject("any", result.timeline, result.costs, case.profile)
        content = page_data([item], title="any", with_baselines=False).content
        shown = np.flatnonzero(~np.isin(result.program.kind, RECV_KINDS))
        sends, receives = match_messages(result.program)
        send_of = dict(zip(receives.tolist(), sends.tolist(), strict=True))
        path = [send_of.get(action, action) for action in critical_path(result.timeline)]
        pages.append({"content": content, "path": np.searchsorted(shown, path).tolist()})
    text = msgspec.json.encode(pages)
    done = subprocess.run(
        [_node(), str(FOLDER / "check_pages.mjs")], input=text, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
