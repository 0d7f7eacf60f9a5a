"""The page as a file: its content, its size, and names that stay text."""

import base64
import hashlib
import json
import re
from pathlib import Path
from posixpath import dirname, normpath
from typing import Any

import msgspec
import pytest

import penstock
from penstock.errors import InputError
from penstock.profile.types import Profile
from penstock.program.actions import Kind
from penstock.report.analysis.gaps import Reason
from penstock.report.html.page import render_page, save_report, title_of
from penstock.report.html.payload.report_data import page_data
from penstock.report.html.script_bundle import bundle_script, minify_style, module_names, source
from penstock.report.subject import ReportSubject, as_subject, prediction_pairs, with_unique_names
from penstock.report.text.comparability import mixed_problems_warning, with_problem_names
from penstock.simulate.evaluation import Evaluation
from penstock.timeline.build import build_timeline

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def problem() -> tuple[Profile, Evaluation]:
    profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=2)
    units = (msgspec.structs.replace(profile.units[0], name=EVIL), *profile.units[1:])
    profile = msgspec.structs.replace(profile, name=EVIL, units=units)
    cluster = penstock.load_cluster("2 x T4 @ 10 GB/s")
    plan = penstock.plan(profile, cluster, 4, planner="balanced", schedule="1f1b")
    return profile, penstock.evaluate(plan, profile, cluster)


def measured(evaluation: Evaluation) -> penstock.Timeline:
    return build_timeline(
        evaluation.proof, evaluation.timeline.start_s * 1.5, evaluation.timeline.end_s * 1.5, "measured"
    )


def data_of(page: bytes) -> dict[str, Any]:
    text = re.search(rb'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    data: dict[str, Any] = json.loads(text[1])
    return data


def test_the_file_stands_alone(problem: tuple[Profile, Evaluation], tmp_path: Path) -> None:
    profile, evaluation = problem
    save_report([evaluation, measured(evaluation)], tmp_path / "report.html", profile=profile)
    page = (tmp_path / "report.html").read_bytes()
    assert page.count(b"<script") == 2
    assert b"http://" not in page.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in page
    policy = re.search(rb'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith(b"default-src 'none'; script-src 'sha256-")
    script = re.search(rb'<script type="module">(.*?)</script>', page, re.DOTALL)
    assert script is not None
    assert base64.b64encode(hashlib.sha256(script[1]).digest()) in policy[1]
    data = data_of(page)
    assert [subject["name"] for subject in data["subjects"]] == ["balanced + 1f1b", "balanced + 1f1b, measured"]
    assert data["pairs"][0]["predicted"] == 0
    assert data["pairs"][0]["measured"] == 1


def test_names_are_never_markup(problem: tuple[Profile, Evaluation]) -> None:
    profile, evaluation = problem
    subject = ReportSubject("{{style}} </script><b>", evaluation.timeline, evaluation.costs, profile)
    page = render_page(page_data([subject], title=title_of([subject]), with_baselines=False))
    assert EVIL.encode() not in page
    assert b"<title>&lt;script&gt;alert(1)&lt;/script&gt; on " in page
    data = data_of(page)
    assert data["layers"][0]["names"][0] == EVIL
    assert data["subjects"][0]["name"] == "{{style}} </script><b>"


def test_sentences_and_figures(problem: tuple[Profile, Evaluation]) -> None:
    profile, evaluation = problem
    data = page_data([ReportSubject("one", evaluation.timeline, evaluation.costs, profile)], title="t")
    subject = data.content["subjects"][0]
    assert "on 2 devices of" in subject["lead"]
    assert any(text.startswith("The most effective changes") for text in subject["sentences"])
    assert subject["improvements"]
    assert subject["figures"]["gap"] == pytest.approx(subject["iteration"] / subject["figures"]["bound"] - 1)
    assert subject["figures"]["rowsPerSecond"] == pytest.approx(4 * 2 / subject["iteration"])
    for row in data.content["problems"][0]:
        assert row["gap"] == pytest.approx(row["iteration"] / subject["figures"]["bound"] - 1)
        assert row["rowsPerSecond"] == pytest.approx(4 * 2 / row["iteration"])
    assert {row["planner"] for row in data.content["problems"][0]} >= {"uniform", "balanced", "spp"}
    assert subject["improvements"][0]["seconds"] < subject["iteration"]


def test_a_timeline_alone_is_enough(problem: tuple[Profile, Evaluation]) -> None:
    _, evaluation = problem
    data = page_data([as_subject(evaluation.timeline)], title="t").content
    assert data["clusters"] == data["layers"] == []
    assert data["subjects"][0]["cluster"] is None
    assert data["subjects"][0]["figures"]["bound"] is None
    assert any(text.startswith("The bottleneck is") for text in data["subjects"][0]["sentences"])


def test_shared_parts_are_stored_once(problem: tuple[Profile, Evaluation]) -> None:
    profile, evaluation = problem
    items = [
        as_subject(evaluation, profile),
        as_subject(measured(evaluation)),
        as_subject(evaluation),
        as_subject(evaluation, profile),
    ]
    data = page_data(items, title="t", with_baselines=False).content
    assert len(data["layers"]) == len(data["clusters"]) == len(data["problems"]) == 1
    # A timeline has neither cluster nor layers; an evaluation has its cluster, and with the profile also the layers.
    assert [subject["cluster"] for subject in data["subjects"]] == [0, None, 0, 0]
    assert [subject["layers"] for subject in data["subjects"]] == [0, None, None, 0]


def test_a_plan_that_does_not_fit_says_so(problem: tuple[Profile, Evaluation]) -> None:
    profile, _ = problem
    wide = penstock.load_cluster("2 x T4 @ 10 GB/s")
    devices = tuple(msgspec.structs.replace(device, memory_bytes=10**8) for device in wide.devices)
    cluster = msgspec.structs.replace(wide, devices=devices)
    plan = penstock.plan(profile, cluster, 4, planner="balanced", schedule="gpipe")
    evaluation = penstock.evaluate(plan, profile, cluster, within_memory=False)
    subject = page_data([ReportSubject("one", evaluation.timeline, evaluation.costs, profile)], title="t").content[
        "subjects"
    ][0]
    assert subject["figures"]["fits"] is False
    assert "and has 100 MB: this plan does not fit." in subject["sentences"][0]


def test_too_many_actions_are_refused(problem: tuple[Profile, Evaluation], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.report.html.payload.report_data.MAX_ACTIONS", 10)
    with pytest.raises(InputError, match=r"exceeds the limit of a report page \(10\)"):
        page_data([as_subject(problem[1])], title="t")


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        page_data([], title="t")


def test_small_enough(problem: tuple[Profile, Evaluation]) -> None:
    profile, _ = problem
    cluster = penstock.load_cluster("8 x T4 @ 10 GB/s")
    plan = penstock.plan(profile, cluster, 300, planner="balanced", schedule="zb_h1")
    evaluation = penstock.evaluate(plan, profile, cluster, within_memory=False)
    subject = ReportSubject("one", evaluation.timeline, evaluation.costs, profile)
    page = render_page(page_data([subject], title="t", with_baselines=False))
    assert len(page) <= 60 * evaluation.program.num_actions + 150_000
    empty = len(bundle_script()) + len(minify_style()) + len(source("page.html"))
    assert empty < 130_000


def test_modules_come_after_their_imports() -> None:
    names = module_names()
    assert names[-1] == "ui/main"
    for index, name in enumerate(names):
        imported = re.findall(r'from "(\.\.?/[a-z_/.]+)\.mjs"', source(f"{name}.mjs"))
        assert {normpath(f"{dirname(name)}/{other}") for other in imported} <= set(names[:index])
    root = Path(penstock.__file__).parent / "report" / "html" / "app"
    sources = {path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.mjs")}
    assert sources == set(names)


def test_bundled_modules_share_no_names() -> None:
    taken = re.findall(r"^(?:async )?(?:function|const|class|let) ([A-Za-z_]\w*)", bundled_lines(), re.MULTILINE)
    assert len(taken) == len(set(taken)), sorted(name for name in taken if taken.count(name) > 1)


def bundled_lines() -> str:
    """All lines of the modules, without the word export."""
    return "\n".join(
        line.removeprefix("export ") for name in module_names() for line in source(f"{name}.mjs").splitlines()
    )


def test_the_script_parses_no_text_as_markup() -> None:
    script = bundle_script()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in script


def test_python_and_javascript_number_kinds_and_reasons_alike() -> None:
    text = source("data/action_kinds.mjs")
    kinds = re.findall(r'"([A-Z_]+)"', text.partition("export const KINDS = [")[2].partition("]")[0])
    assert kinds == [kind.name for kind in Kind]
    reasons = dict(re.findall(r"([A-Z]+): (\d)", text.partition("export const REASON = {")[2].partition("}")[0]))
    assert {name: int(number) for name, number in reasons.items()} == {item.name: int(item) for item in Reason}


def test_pairs_and_names(problem: tuple[Profile, Evaluation]) -> None:
    _, evaluation = problem
    one, other = as_subject(evaluation), as_subject(measured(evaluation))
    assert prediction_pairs([one, other]) == [(0, 1)]
    assert prediction_pairs([other, other, one]) == [(2, 0), (2, 1)]
    assert prediction_pairs([other]) == []
    assert [item.name for item in with_unique_names([one, one])] == ["balanced + 1f1b", "balanced + 1f1b (2)"]
    assert title_of([one]) == f"{EVIL} on 2 x T4 @ 10 GB/s"


def test_a_run_has_no_gap_to_the_bound_of_predicted_times(problem: tuple[Profile, Evaluation]) -> None:
    profile, evaluation = problem
    fast = build_timeline(evaluation.proof, evaluation.timeline.start_s / 9, evaluation.timeline.end_s / 9, "measured")
    data = page_data(
        [ReportSubject("run", fast, evaluation.costs, profile), as_subject(evaluation, profile)],
        title="t",
        with_baselines=False,
    )
    run, prediction = data.content["subjects"]
    assert run["iteration"] < run["figures"]["bound"] == prediction["figures"]["bound"]
    assert run["figures"]["gap"] is None
    assert prediction["figures"]["gap"] >= 0
    is_bounded = [any("no plan can be faster" in text for text in summary.sentences) for summary in data.summaries]
    assert is_bounded == [False, True]
    assert "(one iteration, as in every timeline file)" in data.content["pairs"][0]["sentences"][0]


def test_different_problems_are_named(problem: tuple[Profile, Evaluation]) -> None:
    profile, evaluation = problem
    one = as_subject(evaluation, profile)
    assert mixed_problems_warning([one, one]) is None
    assert [item.name for item in with_problem_names([one, one])] == [one.name, one.name]
    others = []
    for text in ("2 x T4 @ 1 GB/s", "2 x T4 @ 10 GB/s"):
        plain = penstock.load_cluster(text)
        cluster = msgspec.structs.replace(plain, devices=(*plain.devices[:1], _slower(plain.devices[1])))
        plan = penstock.plan(profile, cluster, 4, planner="balanced", schedule="1f1b")
        others.append(as_subject(penstock.evaluate(plan, profile, cluster), profile))
    items = [one, others[0], as_subject(measured(evaluation))]
    # The last one has the same actions, but is no prediction of the run.
    assert others[1].timeline.program.same_actions(one.timeline.program)
    for other in others:
        assert prediction_pairs([one, other, items[2]]) == [(0, 2)]
        assert prediction_pairs([other, items[2]]) == []
    data = page_data(items, title="t", with_baselines=False).content
    assert data["mixed"].startswith(
        f"These plans are for different models or clusters: {EVIL} on 2 x T4 @ 10 GB/s; {EVIL} on 2 x T4 @ 1 GB/s. "
    )
    assert [subject["task"] for subject in data["subjects"]] == [0, 1, 0]
    assert with_problem_names(items)[1].name == f"balanced + 1f1b, {EVIL} on 2 x T4 @ 1 GB/s"
    alike = mixed_problems_warning([one, others[1]])
    assert alike is not None
    assert "(some have the same name but different contents)" in alike


def _slower(device: penstock.Device) -> penstock.Device:
    return msgspec.structs.replace(device, speed=0.999)


def test_times_are_compared_for_the_same_rows(problem: tuple[Profile, Evaluation]) -> None:
    profile, evaluation = problem
    cluster = evaluation.costs.cluster
    items = [as_subject(evaluation, profile)]
    for num in (4, 8):
        plan = penstock.plan(profile, cluster, num, planner="uniform", schedule="gpipe")
        items.append(as_subject(penstock.evaluate(plan, profile, cluster), profile))
    data = page_data(items, title="t", with_baselines=False).content
    assert data["mixed"] is None
    assert [subject["task"] for subject in data["subjects"]] == [0, 0, 1]
