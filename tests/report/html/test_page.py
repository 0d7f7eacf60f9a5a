"""The page as a file: what is in it, how large it is, and that names in it stay text."""

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
from penstock.report.html.bundle_scripts import compact_style, joined_script, module_names, source
from penstock.report.html.page import render_page, save_report, title_of
from penstock.report.html.payload.report_data import page_data
from penstock.report.subject import Shown, as_shown, pairs, with_own_names
from penstock.report.text.comparability import mixed_words, with_problem_names
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


def measured(found: Evaluation) -> penstock.Timeline:
    return build_timeline(found.proof, found.timeline.start_s * 1.5, found.timeline.end_s * 1.5, "measured")


def data_of(page: bytes) -> dict[str, Any]:
    text = re.search(rb'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    found: dict[str, Any] = json.loads(text[1])
    return found


def test_the_file_stands_alone(problem: tuple[Profile, Evaluation], tmp_path: Path) -> None:
    profile, found = problem
    save_report([found, measured(found)], tmp_path / "report.html", profile=profile)
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
    profile, found = problem
    shown = Shown("{{style}} </script><b>", found.timeline, found.costs, profile)
    page = render_page(page_data([shown], title=title_of([shown]), with_baselines=False))
    assert EVIL.encode() not in page
    assert b"<title>&lt;script&gt;alert(1)&lt;/script&gt; on " in page
    data = data_of(page)
    assert data["units"][0]["names"][0] == EVIL
    assert data["subjects"][0]["name"] == "{{style}} </script><b>"


def test_words_and_figures(problem: tuple[Profile, Evaluation]) -> None:
    profile, found = problem
    data = page_data([Shown("one", found.timeline, found.costs, profile)], title="t")
    subject = data.content["subjects"][0]
    assert "on 2 devices of" in subject["lead"]
    assert any(text.startswith("What would help most") for text in subject["words"])
    assert subject["helps"]
    assert subject["figures"]["gap"] == pytest.approx(subject["iteration"] / subject["figures"]["bound"] - 1)
    assert {row["planner"] for row in data.content["problems"][0]} >= {"uniform", "balanced", "spp"}
    assert subject["helps"][0]["seconds"] < subject["iteration"]


def test_a_timeline_alone_is_enough(problem: tuple[Profile, Evaluation]) -> None:
    _, found = problem
    data = page_data([as_shown(found.timeline)], title="t").content
    assert data["clusters"] == data["units"] == []
    assert data["subjects"][0]["cluster"] is None
    assert data["subjects"][0]["figures"]["bound"] is None
    assert any(text.startswith("The bottleneck is") for text in data["subjects"][0]["words"])


def test_what_is_shared_is_there_once(problem: tuple[Profile, Evaluation]) -> None:
    profile, found = problem
    items = [as_shown(found, profile), as_shown(measured(found)), as_shown(found), as_shown(found, profile)]
    data = page_data(items, title="t", with_baselines=False).content
    assert len(data["units"]) == len(data["clusters"]) == len(data["problems"]) == 1
    # A timeline alone names nothing; an evaluation knows its cluster, and with the profile also the model.
    assert [subject["cluster"] for subject in data["subjects"]] == [0, None, 0, 0]
    assert [subject["units"] for subject in data["subjects"]] == [0, None, None, 0]


def test_a_plan_that_does_not_fit_says_so(problem: tuple[Profile, Evaluation]) -> None:
    profile, _ = problem
    wide = penstock.load_cluster("2 x T4 @ 10 GB/s")
    devices = tuple(msgspec.structs.replace(device, memory_bytes=10**8) for device in wide.devices)
    cluster = msgspec.structs.replace(wide, devices=devices)
    plan = penstock.plan(profile, cluster, 4, planner="balanced", schedule="gpipe")
    found = penstock.evaluate(plan, profile, cluster, within_memory=False)
    subject = page_data([Shown("one", found.timeline, found.costs, profile)], title="t").content["subjects"][0]
    assert subject["figures"]["fits"] is False
    assert "and has 100 MB: this plan does not fit." in subject["words"][0]


def test_too_much_is_refused(problem: tuple[Profile, Evaluation], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.report.html.payload.report_data.MOST_ACTIONS", 10)
    with pytest.raises(InputError, match="more than the 10 that a page can show"):
        page_data([as_shown(problem[1])], title="t")


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        page_data([], title="t")


def test_small_enough(problem: tuple[Profile, Evaluation]) -> None:
    profile, _ = problem
    cluster = penstock.load_cluster("8 x T4 @ 10 GB/s")
    plan = penstock.plan(profile, cluster, 300, planner="balanced", schedule="zb_h1")
    found = penstock.evaluate(plan, profile, cluster, within_memory=False)
    page = render_page(page_data([Shown("one", found.timeline, found.costs, profile)], title="t", with_baselines=False))
    assert len(page) <= 60 * found.program.num_actions + 150_000
    empty = len(joined_script()) + len(compact_style()) + len(source("page.html"))
    assert empty < 130_000


def test_modules_stand_behind_what_they_need() -> None:
    names = module_names()
    assert names[-1] == "ui/main"
    for place, name in enumerate(names):
        needed = re.findall(r'from "(\.\.?/[a-z_/.]+)\.mjs"', source(f"{name}.mjs"))
        assert {normpath(f"{dirname(name)}/{other}") for other in needed} <= set(names[:place])
    root = Path(penstock.__file__).parent / "report" / "html" / "app"
    here = {path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.mjs")}
    assert here == set(names)


def test_joined_modules_share_no_names() -> None:
    taken = re.findall(r"^(?:async )?(?:function|const|class|let) ([A-Za-z_]\w*)", joined_script_lines(), re.MULTILINE)
    assert len(taken) == len(set(taken)), sorted(name for name in taken if taken.count(name) > 1)


def joined_script_lines() -> str:
    """The top level alone: what is indented belongs to something."""
    return "\n".join(
        line.removeprefix("export ") for name in module_names() for line in source(f"{name}.mjs").splitlines()
    )


def test_the_script_takes_no_text_as_markup() -> None:
    script = joined_script()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in script


def test_both_sides_count_kinds_and_reasons_alike() -> None:
    text = source("data/action_kinds.mjs")
    kinds = re.findall(r'"([A-Z_]+)"', text.partition("export const KINDS = [")[2].partition("]")[0])
    assert kinds == [kind.name for kind in Kind]
    reasons = dict(re.findall(r"([A-Z]+): (\d)", text.partition("export const REASON = {")[2].partition("}")[0]))
    assert {name: int(number) for name, number in reasons.items()} == {item.name: int(item) for item in Reason}


def test_pairs_and_names(problem: tuple[Profile, Evaluation]) -> None:
    _, found = problem
    one, other = as_shown(found), as_shown(measured(found))
    assert pairs([one, other]) == [(0, 1)]
    assert pairs([other, other, one]) == [(2, 0), (2, 1)]
    assert pairs([other]) == []
    assert [item.name for item in with_own_names([one, one])] == ["balanced + 1f1b", "balanced + 1f1b (2)"]
    assert title_of([one]) == f"{EVIL} on 2 x T4 @ 10 GB/s"


def test_a_run_is_not_judged_by_the_bound_of_predicted_times(problem: tuple[Profile, Evaluation]) -> None:
    profile, found = problem
    fast = build_timeline(found.proof, found.timeline.start_s / 9, found.timeline.end_s / 9, "measured")
    data = page_data(
        [Shown("run", fast, found.costs, profile), as_shown(found, profile)], title="t", with_baselines=False
    )
    run, prediction = data.content["subjects"]
    assert run["iteration"] < run["figures"]["bound"] == prediction["figures"]["bound"]
    assert run["figures"]["gap"] is None
    assert prediction["figures"]["gap"] >= 0
    told = [any("no plan can be faster" in text for text in words.sentences) for words in data.words]
    assert told == [False, True]
    assert "a timeline file holds no more" in data.content["pairs"][0]["words"][0]


def test_different_problems_are_told_apart(problem: tuple[Profile, Evaluation]) -> None:
    profile, found = problem
    one = as_shown(found, profile)
    assert mixed_words([one, one]) is None
    assert [item.name for item in with_problem_names([one, one])] == [one.name, one.name]
    others = []
    for text in ("2 x T4 @ 1 GB/s", "2 x T4 @ 10 GB/s"):
        plain = penstock.load_cluster(text)
        cluster = msgspec.structs.replace(plain, devices=(*plain.devices[:1], _slower(plain.devices[1])))
        plan = penstock.plan(profile, cluster, 4, planner="balanced", schedule="1f1b")
        others.append(as_shown(penstock.evaluate(plan, profile, cluster), profile))
    items = [one, others[0], as_shown(measured(found))]
    # The other has the same actions, but is no prediction of the run.
    assert others[0].timeline.program.same_actions(one.timeline.program)
    assert pairs(items) == [(0, 2)]
    assert pairs(items[1:]) == []
    data = page_data(items, title="t", with_baselines=False).content
    assert data["mixed"].startswith(
        f"These are for different models or clusters: {EVIL} on 2 x T4 @ 10 GB/s; {EVIL} on 2 x T4 @ 1 GB/s. "
    )
    assert [subject["task"] for subject in data["subjects"]] == [0, 1, 0]
    assert with_problem_names(items)[1].name == f"balanced + 1f1b, {EVIL} on 2 x T4 @ 1 GB/s"
    alike = mixed_words([one, others[1]])
    assert alike is not None
    assert "(some have the same name and differ in what they hold)" in alike


def _slower(device: penstock.Device) -> penstock.Device:
    return msgspec.structs.replace(device, speed=0.9)


def test_times_are_compared_for_the_same_rows(problem: tuple[Profile, Evaluation]) -> None:
    profile, found = problem
    cluster = found.costs.cluster
    items = [as_shown(found, profile)]
    for num in (4, 8):
        plan = penstock.plan(profile, cluster, num, planner="uniform", schedule="gpipe")
        items.append(as_shown(penstock.evaluate(plan, profile, cluster), profile))
    data = page_data(items, title="t", with_baselines=False).content
    assert data["mixed"] is None
    assert [subject["task"] for subject in data["subjects"]] == [0, 0, 1]
