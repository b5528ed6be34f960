"""The report: one page, self-contained, well-formed, and saying what its inputs say."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from features.files import write_json, write_table
from features.spec import FeatureSpec
from models.bundle import (
    PACKING_FEATURES,
    PAIR_FEATURES,
    AdditiveModel,
    Axis,
    Bundle,
    Node,
    PackingModel,
    PairSpeedModel,
    Term,
    Tree,
)
from pipeline import runs
from pipeline.commands.report import report
from pipeline.explain import RunError
from pipeline.explain.run import read_story
from pipeline.report import policies, trace
from pipeline.report.build import Inputs, Report, ReportError, build, check_scores
from pipeline.report.comparison import Comparison, PolicyRun, read_comparison
from pipeline.report.each_job import started
from pipeline.report.interactive import ROOM, PolicyResult, columns
from pipeline.report.models import error_table, learning_facts, meaning, read_models
from pipeline.report.paired import paired
from pipeline.report.samples import _because, samples
from pipeline.report.schedule import Gantt, read_schedule
from pipeline.tables import of_jobs
from pipeline.worlds import open_scenario
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.explain.life import JobFacts
from scheduler.explain.story import build_story
from scheduler.explain.words import duration, roughly

CLUSTER = Path(__file__).resolve().parents[2] / "pipeline" / "worlds" / "clusters" / "small.yaml"
VOID = {"meta", "link", "br", "img", "input", "hr"}
MOST = 5 << 19  # 2.5 MiB: the chart library is 0.3 of them


# --- inputs --------------------------------------------------------------------------------------


def a_bundle() -> Bundle:
    """Three features, one pair, both trees; every number chosen by hand."""
    rng = np.random.default_rng(0)
    axes = (
        Axis(
            FeatureSpec("last_s", "continuous", "user", "s", "last <job>"), (10.0, 60.0, 36_000.0)
        ),
        Axis(FeatureSpec("kind", "nominal", "size", "", "kind"), (), ("a", "b")),
        Axis(FeatureSpec("share", "continuous", "user", "", "share"), (0.5,)),
    )
    sizes = [axis.size for axis in axes]

    def term(*features: int, origin: str = "fit") -> Term:
        shape = tuple(sizes[i] for i in features)
        weights = rng.integers(0, 50, shape).astype(np.float64)
        return Term(features, rng.normal(size=shape), weights, np.full(shape, 0.1), origin)

    terms = [term(0, origin="monotone"), term(1), term(2), term(0, 2)]
    leaf = {"feature": -1, "threshold": 0.0, "left": -1, "right": -1, "missing_left": False}
    root = {"feature": 0, "threshold": 40.0, "left": 1, "right": 2, "missing_left": True}
    packing = Tree(
        PACKING_FEATURES,
        [
            Node(**root, value=(0.5, 0.0, 0.5), rows=10),
            Node(**leaf, value=(1.0, 0.0, 0.0), rows=4),
            Node(**leaf, value=(0.0, 0.1, 0.9), rows=6),
        ],
    )
    pair = Tree(PAIR_FEATURES, [Node(**leaf, value=(0.75,), rows=3)])
    return Bundle(
        duration=AdditiveModel(axes, terms, 5.0),
        packing=PackingModel(packing),
        pair_speed=PairSpeedModel(pair),
        metadata={"duration": {"rows": 99}, "packing": {"origin": "simulated"}},
    )


METRICS = {
    "test_jobs": 5,
    "duration": {
        "ga2m": {"n": 5.0, "spearman": 0.5, "mae_log10": 0.7, "auc_1h": None},
        "lightgbm_l1": {"n": 5.0, "spearman": 0.6, "mae_log10": 0.8},
        "constant_median": {"n": 5.0, "spearman": float("nan"), "mae_log10": 0.9},
    },
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, small_trace: Path) -> Inputs:
    folder = tmp_path_factory.mktemp("inputs")
    scenario = open_scenario(small_trace, cluster=CLUSTER)
    runs.compare(lambda _: scenario, ["fifo", "srtf", "lucid"], [0], out=folder / "runs")
    a_bundle().save(folder / "bundle")
    (folder / "metrics.json").write_text(json.dumps(METRICS))
    return Inputs(folder / "runs", folder / "bundle", small_trace, folder / "metrics.json")


@pytest.fixture(scope="module")
def whole(inputs: Inputs) -> Report:
    return build(inputs)


@pytest.fixture(scope="module")
def comparison(inputs: Inputs) -> Comparison:
    assert inputs.compare is not None
    return read_comparison(inputs.compare)


# --- the page ------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects what a page loads, names and links to; fails on tags that do not nest."""

    def __init__(self, html: str):
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.seen.append((tag, given))
        if tag not in VOID:
            self.open.append(tag)
        if given.get("id"):
            self.ids.append(given["id"] or "")
        for name in ("src", "srcset", "href", "xlink:href", "data", "poster", "action"):
            value = given.get(name)
            if value is not None:
                (self.links if tag == "a" else self.loads).append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def tags(self, tag: str) -> list[dict[str, str | None]]:
        return [given for name, given in self.seen if name == tag]


def shown(html: str) -> str:
    """A page without its head, which holds scripts and columns, and without data of its charts."""
    return re.sub(r'<script type="application/json">.*?</script>', "", html.split("<body", 1)[1])


def test_the_page_loads_nothing(whole: Report) -> None:
    page = Page(whole.html)
    assert page.loads == []
    assert page.tags("link") == page.tags("iframe") == []
    assert not [given for given in page.tags("script") if "src" in given]
    assert "<script" not in shown(whole.html)
    assert re.findall(r"https?://", shown(whole.html)) == []
    assert "@import" not in whole.html
    urls = re.findall(r"url\(([^)]*)\)", shown(whole.html))
    assert all(url.startswith("#") for url in urls)
    assert len(whole.html.encode()) < MOST


def test_a_browser_is_told_to_run_what_the_page_brought_and_to_ask_nobody(whole: Report) -> None:
    (allowed,) = (
        given["content"] or ""
        for given in Page(whole.html).tags("meta")
        if given.get("http-equiv") == "Content-Security-Policy"
    )
    assert allowed.startswith("default-src 'none'; script-src 'sha256-")
    scripts = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", whole.html, re.DOTALL)
    (script,) = scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in allowed


def test_the_figures_are_drawn_of_what_the_runs_recorded(
    whole: Report, comparison: Comparison
) -> None:
    (text,) = re.findall(r'id="columns">(.*?)</script>', whole.html)
    found = json.loads(text)
    jobs = comparison.runs[0].jobs
    assert (len(found["id"]), found["of"], found["share"]) == (len(jobs), len(jobs), 1.0)
    for one, run in zip(found["results"], comparison.runs, strict=True):
        waits = of_jobs(run.jobs, pa.array(found["id"]))["queue_s"].to_pylist()
        assert one["name"] == run.name
        assert one["wait"] == [round(s) for s in waits]
        assert one["oracle"] is run.oracle
    assert [one["colour"] for one in found["results"]] == [6, 7, 1]  # fifo, srtf and lucid's
    assert set(found["explained"]) <= set(found["id"])
    assert set(found["explained"].values()) <= set(Page(whole.html).ids)


def test_too_many_jobs_are_thinned_evenly_and_those_told_of_stay() -> None:
    n = 60_000
    jobs = pa.table(
        {
            "job_id": [str(i) for i in range(n)],
            "vc": ["a"] * n,
            "gpus": [1] * n,
            "submit_time": np.arange(float(n)),
        }
    )
    result = PolicyResult("fifo", 0, np.full(n, 12_345.0), np.full(n, np.nan))
    found = columns(jobs, [result], {"777": "job-told"})
    assert 0.02 < found["share"] < 0.5
    assert found["share"] == len(found["id"]) / n
    assert found["explained"] == {"777": "job-told"}
    assert len(json.dumps(found, separators=(",", ":"))) < ROOM
    halves = sum(at < n / 2 for at in found["at"]) / len(found["at"])
    assert halves == pytest.approx(0.5, abs=0.01)
    assert found["results"][0]["jct"][0] is None


def test_the_page_is_well_formed_and_its_links_lead_somewhere(whole: Report) -> None:
    page = Page(whole.html)
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    used = set(
        re.findall(r"url\(#([^)]*)\)", whole.html.split("<script", 1)[0] + shown(whole.html))
    )
    assert used <= set(page.ids)


def test_the_page_can_be_read_without_seeing_it(whole: Report) -> None:
    page = Page(whole.html)
    assert page.tags("html")[0]["lang"] == "en"
    for svg in page.tags("svg"):
        assert svg.get("aria-hidden") == "true"
    plots = [tag for tag in page.tags("div") if "plot" in (tag.get("class") or "").split()]
    assert len(plots) > 10
    assert all(one.get("role") == "img" and one.get("aria-label") for one in plots)
    headers = page.tags("th")
    assert headers
    assert all(th.get("scope") in ("col", "row") for th in headers)
    levels = [int(tag[1]) for tag, _ in page.seen if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_every_section_is_there(whole: Report, comparison: Comparison) -> None:
    assert all(whole.sections.values())
    assert whole.problems == []
    for section in ("policies", "jobs", "trace", "models", "limits"):
        assert f'<section id="{section}">' in whole.html
    for text in ("600 jobs", "The trace is synthetic", "come from a formula", a_bundle().digest):
        assert text in whole.html
    for run in comparison.runs:
        assert f"run {run.name} (decisions, jobs)" in whole.html
    assert "Left out" not in whole.html


def test_the_same_inputs_give_the_same_page(inputs: Inputs, whole: Report) -> None:
    assert build(inputs).html == whole.html


@pytest.mark.parametrize("kept", ["compare", "bundle", "trace", "metrics"])
def test_sections_without_input_are_left_out_and_said_to_be(inputs: Inputs, kept: str) -> None:
    made = build(Inputs(**{kept: getattr(inputs, kept)}))
    Page(made.html)
    flags = {"compare": "policies", "bundle": "models", "trace": "trace", "metrics": "errors"}
    for given, section in flags.items():
        drawn_from_runs = (given, kept) == ("trace", "compare")
        assert made.sections[section] is (given == kept or drawn_from_runs)
        if given != kept and not drawn_from_runs and (given != "metrics" or kept == "bundle"):
            assert f"<code>--{given}</code>" in made.html


def test_names_from_outside_cannot_write_html(inputs: Inputs, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    assert inputs.compare is not None
    folder = tmp_path / "run"
    shutil.copytree(inputs.compare / "lucid", folder)
    for name in ("jobs.parquet", "decisions.parquet"):
        table = pq.read_table(folder / name)
        vc = pa.array([evil] * table.num_rows).cast(table.schema.field("vc").type)
        write_table(folder / name, table.set_column(table.column_names.index("vc"), "vc", vc))
    summary = json.loads((folder / "summary.json").read_text())
    write_json(folder / "summary.json", summary | {"policy": evil, "cluster": {evil: 7}})
    made = build(Inputs(compare=folder, bundle=inputs.bundle))
    assert made.headline[0].startswith("Under ")  # of a single run
    html = made.html
    Page(html)
    assert evil not in html
    assert "<script" not in shown(html)
    assert "&lt;script&gt;" in html
    assert "last &lt;job&gt;" in html


# --- what it says --------------------------------------------------------------------------------


def rows_drawn(gantt: Gantt) -> set[int]:
    """The rows on which anything is drawn."""
    boxes = re.findall(r"M\d+ (\d+)h\d+v(\d+)h", "".join(path for _, path in gantt.layers))
    return {row for top, tall in boxes for row in range(int(top), int(top) + int(tall))}


@pytest.mark.parametrize("policy", ["fifo", "lucid"])
def test_what_is_drawn_is_who_had_gpus(comparison: Comparison, policy: str) -> None:
    run = comparison.run(policy)
    assert run is not None
    schedule = read_schedule(run)
    assert schedule is not None
    ends = dict(zip(*run.jobs.select(["job_id", "end_time"]).to_pydict().values(), strict=True))
    rows = pq.read_table(run.folder.folder / "decisions.parquet").to_pylist()
    leaves = {r["job_id"]: r["time"].timestamp() for r in rows if r["action"] == "enqueue"}
    seen = 0
    for moment in np.linspace(schedule.first, schedule.last, 40) + 0.3337:
        held = set()  # rows, read off the masks: nothing shared with `read_schedule`
        for row in rows:
            if row["action"] in ("start", "pack", "profile"):
                end = ends[row["job_id"]]
                if row["action"] == "profile":
                    end = leaves.get(row["job_id"], end)
                if row["time"].timestamp() <= moment < end:
                    for node, mask in zip(row["nodes"], row["gpus"], strict=True):
                        first = schedule.row[node] * schedule.gpus_per_node
                        held |= {first + bit for bit in range(8) if mask >> bit & 1}
        assert rows_drawn(schedule.drawn(moment - 1e-3, moment + 1e-3)) == held
        seen += len(held)
    assert seen
    shares = schedule.shares(schedule.first, schedule.last)
    assert [row[0] for row in shares] == [*run.gpus_by_vc]


def fake(name: str, jct: float, *, oracle: bool = False, seeds: int = 4) -> PolicyRun:
    folder: Any = SimpleNamespace(summary={"cluster": {"a": 2}, "gpus_by_vc": {"a": 16}})
    figures = {"avg_jct_s_mean": jct, "avg_jct_s_sd": 10.0, "runs": seeds}
    jobs = pa.table(
        {"job_id": ["1", "2"], "vc": ["a", "a"], "end_time": [9.0, 9.0], "jct_s": [5.0, 5.0]}
    )
    return PolicyRun(name, oracle, oracle, True, folder, jobs, [jobs] * seeds, figures)


def drawn_of(name: str, each: list[float], *, oracle: bool = False) -> PolicyRun:
    """A policy whose average JCT is known of every draw."""
    run = fake(name, np.mean(each).item(), oracle=oracle, seeds=len(each))
    run.figures.update(avg_jct_s_each=each)
    return run


OTHERS = [100.0, 200, 300, 400, 500]


@pytest.mark.parametrize(
    ("ours", "tally", "verdict"),
    [
        ([90.0, 190, 290, 390, 490], "ahead in 5 of 5 draws", "ahead"),  # though draws differ more
        ([110.0, 210, 310, 410, 510], "ahead in 0 of 5 draws", "behind"),
        ([50.0, 250, 250, 450, 400], "ahead in 3 of 5 draws", "level"),
        ([90.0, 190, 290, 390], "ahead in 4 of 4 draws", ""),  # too few draws to tell
        (OTHERS, "ahead in 0 of 5 draws, the same in 5", "level"),
    ],
)
def test_a_verdict_needs_draws_that_agree(ours: list[float], tally: str, verdict: str) -> None:
    made = [drawn_of("fifo", OTHERS[: len(ours)]), drawn_of("pellucid", ours)]
    c = Comparison("", [*range(len(ours))], made)
    found = c.paired(made[0], "avg_jct_s")
    assert found is not None
    assert (found.tally, found.verdict) == (tally, verdict)
    (cell, own), said = (row[3][0] for row in policies.tables(c)[0].rows), policies.headline(c)[0]
    assert (cell.verdict, own.verdict) == (verdict, "")
    assert tally in said
    assert ("No verdict yet" in said) == (verdict == "")
    assert ("level on the mean" in said) == (verdict == "level")


def test_no_verdict_is_given_while_draws_are_to_come() -> None:
    made = [drawn_of("fifo", OTHERS), drawn_of("pellucid", [x / 2 for x in OTHERS])]
    whole, so_far = Comparison("", [*range(5)], made), Comparison("", [*range(5)], made, coming=10)
    assert "ahead on the mean" in policies.headline(whole)[0]
    said = policies.headline(so_far)
    assert "so far ahead in 5 of 5 draws" in said[0]
    assert "No verdict yet; 15 draws are coming." in said[0]
    verdicts = [cell.verdict for t in policies.tables(so_far) for row in t.rows for cell in row[3]]
    assert {*verdicts} == {""}


def test_an_interval_is_of_the_ratio_and_never_nonsense() -> None:
    """Fairness of 6 with an interval from -1 to 14 was one of a mean."""
    found = paired(np.array([1.1, 1.2, 20.0]), np.array([1.0, 1.1, 1.0]))
    assert found is not None
    assert found.low is not None
    assert 0 < found.low < found.ratio < (found.high or 0.0)
    assert paired(np.array([0.0, 1.0]), np.array([1.0, 1.0])) is None
    assert paired(np.array([1.0]), np.array([1.0, 1.0])) is None


def test_the_headline_names_rivals_oracle_and_what_was_run() -> None:
    made = [
        drawn_of("fifo", [7200.0] * 4),
        drawn_of("lucid", [3700.0, 3500, 3600, 3600]),
        drawn_of("pellucid", [3600.0, 3600, 3500, 3700]),
        drawn_of("srtf", [1800.0] * 4, oracle=True),
    ]
    said = policies.headline(Comparison("published", [0, 1, 2, 3], made))
    assert said[0].startswith(
        "Against lucid (ASPLOS'23, rebuilt here), pellucid is so far ahead in 2 of 4"
    )
    assert said[1].startswith("Against fifo (in order), pellucid is so far ahead in 4 of 4")
    assert said[2] == (
        "Simulated: 8 jobs in 4 draws on 16 GPUs in 1 virtual cluster, track published."
    )
    (words,) = policies.abstract(Comparison("published", [0, 1, 2, 3], made))
    assert (
        "On average a job takes 1 h under pellucid, waiting included; under srtf, an oracle that "
        "knows every duration and preempts, 30 min."
    ) in words


def test_the_headline_says_where_it_is_behind() -> None:
    made = [drawn_of("fifo", [7200.0] * 5), drawn_of("pellucid", [3600.0] * 5),
            drawn_of("srtf", [1800.0] * 5, oracle=True)]  # fmt: skip
    noise = [0.0, 600.0, -600.0, 1200.0, -1200.0]
    for run, wide_s in zip(made, (7200.0, 18_000.0, 60.0), strict=True):
        run.figures.update(max_queue_large_s_each=[wide_s + x / 100 for x in noise])
        run.figures.update(p99_queue_s_each=[7200 + x * (run.name == "fifo") for x in noise])
        shared = run.name == "pellucid"  # whoever never shares is slowed by nobody
        run.figures.update(
            packed_jobs_mean=40.0 * shared, mean_slowdown_packed_each=[1.0 + shared] * 5
        )
    said = policies.headline(Comparison("", [*range(5)], made))
    assert (
        "It is behind beyond chance (the 95 % interval) in longest wait, wide (more than 8 GPUs: "
        "+150 % against fifo)." in said
    )
    fine = policies.headline(
        Comparison("", [*range(5)], [made[0], drawn_of("pellucid", [9.0] * 5)])
    )
    assert any(s.startswith("In no figure below is it behind") for s in fine)


def test_a_single_seed_claims_nothing(comparison: Comparison) -> None:
    said = policies.headline(comparison)
    assert "One draw shows no verdict" in said[0]
    cells = [cell for t in policies.tables(comparison) for row in t.rows for cell in row[3]]
    assert {cell.verdict for cell in cells} == {""}


def test_every_draw_is_a_dot(comparison: Comparison) -> None:
    made = [drawn_of("fifo", OTHERS), drawn_of("pellucid", [50.0, 250, 250, 450, 400])]
    chart = policies.dots(Comparison("", [*range(5)], made))
    assert chart is not None
    dots, (bar,) = (chart.spec["data"]["values"], chart.spec["layer"][0]["data"]["values"])
    assert [dot["ratio"] for dot in dots] == [0.5, 1.25, 0.8333, 1.125, 0.8]
    assert {dot["name"] for dot in dots} == {bar["name"]} == {"fifo"}
    assert bar["ratio"] < 1 < bar["to"]
    assert chart.rows[0][0] == "fifo"
    assert chart.rows[0][4] == "level"
    assert policies.dots(Comparison("", [0], [comparison.runs[0]])) is None


def test_who_gains_and_who_loses_is_counted_job_by_job(comparison: Comparison) -> None:
    (found,) = policies.gains(comparison)  # lucid is the best here, fifo its rival
    ours, theirs = comparison.own.jobs, comparison.run("fifo")
    assert theirs is not None
    other = dict(zip(*theirs.jobs.select(["job_id", "jct_s"]).to_pydict().values(), strict=True))
    gaps = [other[row["job_id"]] - row["jct_s"] for row in ours.to_pylist()]
    assert found.sooner == pytest.approx(sum(gap > 1 for gap in gaps) / len(gaps))
    assert found.later == pytest.approx(sum(gap < -1 for gap in gaps) / len(gaps))
    single = [row["jct_s"] for row in ours.to_pylist() if row["gpus"] == 1]
    group = next(g for g in found.by_size if g.name == "1 GPU")
    assert (group.jobs, group.ours_s) == (len(single), pytest.approx(np.mean(single)))
    late = [-gap for gap in gaps if gap < -1]
    if late:
        half = roughly(float(np.median(late)))
        assert f"Of the later ones half lose over {half}." in found.sentences[0]


def test_who_ends_later_is_the_group_of_the_largest_share_and_no_small_one() -> None:
    labels = np.array(["a"] * 120 + ["b"] * 80 + ["c"], object)
    late = np.zeros(201, bool)
    late[:30] = late[120:160] = late[200] = True
    most = policies._most(labels, late, "in")  # of c, all; but it is one job of 201
    assert most == "those in b (50 % of them)"
    alone = policies._most(labels[120:160], late[120:160], "with")
    assert alone == "those with b (100 % of them)"
    gains = policies.Gains(
        rival="lucid",
        sooner=0.3,
        later=0.1,
        later_s=600.0,
        most_later=["those in b (50 % of them)"],
        by_size=[],
        by_vc=[],
    )
    assert gains.sentences == [
        "Against lucid, 30 % of the jobs end sooner, 10 % later, the others at the same time. Of "
        "the later ones half lose over 10 min."
    ]
    assert gains.most == "Most often later: those in b (50 % of them)."
    assert replace(gains, later=0.0).sentences[0].endswith("the same time.")


def test_curves_say_what_they_mean() -> None:
    def of(scores: list[float], cuts: tuple[float, ...]) -> str:
        kind, names = ("continuous", ()) if cuts else ("nominal", ("a", "b"))
        axis = Axis(FeatureSpec("last_s", kind, "size", "s" if cuts else ""), cuts, names)
        held = np.array([0.0, *scores, *([0.0] if names else [])])
        weights = np.array([1.0] * (1 + len(scores)) + [0.0] * bool(names))
        return meaning(axis, Term((0,), held, weights, held * 0))

    rising = "More (to the right): predicted to run longer, from ×0.50 to ×2.00."
    assert of([-0.693, 0.0, 0.693], (60.0, 3600.0)) == rising
    assert "shorter" in of([0.693, 0.0, -0.693], (60.0, 3600.0))
    assert of([0.01, 0.02, -0.01], (60.0, 3600.0)).startswith("It hardly matters")
    peak = of([0.0, 0.693, -0.1], (60.0, 3600.0))
    assert peak.startswith("Taken to run longest at 60 s to 1 h (×2.00), shortest at ≥ 1 h")
    assert of([0.693, -0.3], ()) == "Taken to run longest at a (×2.00), shortest at b (×0.74)."


def test_sample_jobs_are_the_telling_ones(whole: Report, comparison: Comparison) -> None:
    """The first waited, shared, was predicted, and gained most; the second lost most."""
    rival = comparison.run("fifo")
    assert rival is not None
    ours = comparison.own.ended.to_pylist()
    waits = {row["job_id"]: row["queue_s"] for row in ours}
    theirs = dict(zip(*rival.jobs.select(["job_id", "queue_s"]).to_pydict().values(), strict=True))
    less = {job: theirs[job] - wait_s for job, wait_s in waits.items()}
    packs = comparison.own.decisions(["seq", "time", "job_id"], ["pack"])["job_id"].to_pylist()
    told = [s.view.story.job.job_id for s in samples(comparison, [6, 7, 1], None, None)]
    telling = [job for job in waits if job in packs and waits[job] >= 60]
    assert told[0] == max(telling or packs, key=lambda job: less[job])
    assert all(f"<h4>Job {job}</h4>" in whole.html for job in told)
    assert max(waits, key=lambda job: waits[job]) in told
    assert len(told) == len({*told})


def test_a_job_stands_beside_itself_under_other_policies(comparison: Comparison) -> None:
    first = samples(comparison, [6, 7, 1], read_schedule(comparison.own), a_bundle())[0]
    job = first.view.story.job.job_id
    for one in first.lives:
        run = comparison.run(one.policy)
        assert run is not None
        (row,) = run.jobs.filter(pc.equal(run.jobs["job_id"], job)).to_pylist()
        assert (one.wait_s, one.jct_s) == (row["queue_s"], row["jct_s"])
    assert [one.policy for one in first.lives] == ["lucid", "fifo"]
    assert max(one.whole for one in first.lives) == 100.0
    assert first.tree is None, "the bundle is another than the one that decided"


def test_a_policy_of_ones_own_is_known_by_what_its_run_says(tmp_path: Path, inputs: Inputs) -> None:
    assert inputs.trace is not None
    scenario = open_scenario(inputs.trace, cluster=CLUSTER)
    named = "reproductions.baselines.srtf:Srtf"
    runs.compare(lambda _: scenario, ["fifo", named], [0], out=tmp_path)
    own = read_comparison(tmp_path).runs[1]
    assert (own.name, own.oracle, own.preemptive) == (named, True, True)
    assert read_comparison(tmp_path).best.name == "fifo"


def test_recorded_scores_are_all_added_up(inputs: Inputs, tmp_path: Path) -> None:
    assert inputs.compare is not None
    run = read_comparison(inputs.compare / "lucid").runs[0]
    good = check_scores(run)
    assert good.scored > 100
    assert good.wrong == 0
    assert good.worst <= 1e-9

    folder = tmp_path / "run"
    shutil.copytree(inputs.compare / "lucid", folder)
    table = pq.read_table(folder / "decisions.parquet")
    scores = [None if s is None else s + 1e-3 for s in table["score"].to_pylist()]
    index = table.column_names.index("score")
    write_table(
        folder / "decisions.parquet",
        table.set_column(index, table.schema.field("score"), pa.array(scores, pa.float64())),
    )
    made = build(Inputs(compare=folder))
    assert check_scores(read_comparison(folder).runs[0]).wrong == good.scored
    assert any("not the sum" in p for p in made.problems)
    assert "recorded scores are not the sum of their terms" in made.html


# --- models --------------------------------------------------------------------------------------


def test_models_are_those_of_the_bundle(inputs: Inputs) -> None:
    assert inputs.bundle is not None
    facts, model = read_models(inputs.bundle), a_bundle().duration
    texts = {spec.name: spec.text or spec.name for spec in model.features}
    for bar, name in zip(facts.importance, model.importances(), strict=False):
        assert bar.text == " and ".join(texts[part] for part in name.split(" & "))
    singles = [term for term in model.terms if len(term.features) == 1]
    assert len(facts.shapes) == len([term for term in singles if term.importance() > 0])
    assert any(chart.title.endswith("(made monotone)") for chart in facts.shapes)
    assert {chart.code for chart in facts.shapes} <= set(texts), "what an edits file calls them"
    pair = model.terms[-1]
    (drawn,) = facts.pairs
    assert drawn.code == ", ".join(model.features[i].name for i in pair.features)
    shades = [cell["shade"] for cell in drawn.spec["data"]["values"]]
    scores = pair.scores[pair.weights > 0]
    assert sorted(shades) == pytest.approx(sorted(scores / abs(scores).max()), abs=1e-3)
    assert facts.packing is not None
    assert facts.packing.root.yes is not None
    assert facts.packing.root.yes.text == "tiny (100 %)"


def test_a_curve_is_drawn_where_rows_were_and_every_term_is_accounted_for(tmp_path: Path) -> None:
    spec = FeatureSpec("like_user", "continuous", "survival", "ln ratio", "how much longer")
    axis = Axis(spec, tuple(np.arange(-9.0, 10.0)))
    weights = np.zeros(axis.size)
    weights[9:12] = 5.0
    main = Term((0,), np.linspace(-9.0, 9.0, axis.size), weights, np.zeros(axis.size))
    idle = Axis(FeatureSpec("cpus", "continuous", "size"), (2.0,))
    still = Term((1,), np.zeros(3), np.ones(3), np.zeros(3))
    Bundle(duration=AdditiveModel([axis, idle], [main, still], 0.0)).save(tmp_path / "b")
    facts = read_models(tmp_path / "b")
    (drawn,) = facts.shapes
    steps = drawn.spec["data"]["values"]
    assert [step["from"] for step in steps][1:-1] == list(axis.cuts[7:11])
    assert '"×1"' in drawn.spec["encoding"]["x"]["axis"]["labelExpr"]
    assert "ln ratio" not in json.dumps(drawn.spec)
    assert facts.undrawn == 1
    assert "1 of them moved next to no training row and is not drawn" in (
        build(Inputs(bundle=tmp_path / "b")).html
    )


def test_the_error_table_marks_the_best_of_each_column() -> None:
    table = error_table(METRICS)
    assert table is not None
    assert table.jobs == 5
    assert table.headings == ("Spearman of duration", "MAE of log10")
    assert [row.used for row in table.rows] == [True, False, False]
    cells = {row.name: row.cells for row in table.rows}
    assert cells["GA2M (used)"] == (("0.500", False), ("0.700", True))
    assert cells["LightGBM median"] == (("0.600", True), ("0.800", False))
    assert cells["constant median"][0] == ("–", False)
    assert error_table({"duration": 3, "x": [1]}) is None


def test_history_is_said_to_help_only_where_replays_show_it() -> None:
    def points(*replays: list[float]) -> list[dict[str, Any]]:
        return [
            {"jobs": 100 * i, "mae_log10": 0.7, "avg_jct_s": np.mean(one), "avg_jct_each_s": one}
            for i, one in enumerate(replays)
        ]

    chance = learning_facts(points([21_143, 21_572, 23_889], [21_706, 21_425, 23_160]))
    assert chance is not None
    assert chance.conclusion.startswith("level: with all of it jobs take as long as with none (± ")
    real = learning_facts(points([7_210, 7_190, 7_200], [3_600, 3_590, 3_605]))
    assert real is not None
    assert real.conclusion.startswith("with all of it jobs take 1 h shorter than with none (± ")
    assert learning_facts(points([1.0])) is None


def test_drift_is_told_in_words_and_a_job_has_one_prediction(
    inputs: Inputs, comparison: Comparison, tmp_path: Path
) -> None:
    run = comparison.best.jobs.select(["job_id", "estimate_s"]).drop_null().to_pylist()[0]
    job = run["job_id"]
    foil = {"job_id": job, "kind": "typical", "gpus": 1, "duration_s": 60.0, "alike": []}
    drift = {"rows": 300, "features": {"last_s": 4.33, "kind": 0.01}, "warnings": ["x: stability"]}
    more = {"foils": [foil | {"predicted_s": 1e9}], "drift": drift}
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(METRICS | more))
    html = build(Inputs(inputs.compare, inputs.bundle, inputs.trace, path)).html
    said = shown(html)
    moved = said[said.index("Drift since training") :].split("</details>")[0]
    assert "last_s" not in moved
    assert "another population" in moved
    row = said[said.index(f"{job} (typical)") :].split("</tr>")[0]
    assert f">{duration(run['estimate_s'])}<" in row


# --- charts --------------------------------------------------------------------------------------


def test_a_histogram_loses_nothing() -> None:
    values = np.array([0.0, 0.5, 1.0, 9.9, 10.0, 1e6, 3.3e7])
    edges, counts = trace.log_histogram(values)
    assert counts.sum() == len(values)
    assert edges[0] == 1.0
    assert (np.diff(edges) > 0).all()


# --- bad input -----------------------------------------------------------------------------------


def test_without_input_there_is_no_report() -> None:
    with pytest.raises(ReportError, match="--compare"):
        build(Inputs())


@pytest.mark.parametrize(
    "content",
    ["", "{}", '{"policies": 3}', '{"policies": []}', '{"policies": [{"policy": "gone"}]}',
     '{"policies": [{"policy": "fifo"}], "seeds": "x"}'],
)  # fmt: skip
def test_a_wrong_comparison_is_one_line(inputs: Inputs, tmp_path: Path, content: str) -> None:
    assert inputs.compare is not None
    shutil.copytree(inputs.compare / "fifo", tmp_path / "fifo")
    (tmp_path / "compare.json").write_text(content)
    with pytest.raises(RunError) as caught:
        read_comparison(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_command(inputs: Inputs, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(report)
    out = tmp_path / "deep" / "report.html"
    done = CliRunner().invoke(app, ["--compare", str(inputs.compare), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.output)
    assert answer["bytes"] == out.stat().st_size
    assert answer["sections"] == {
        "policies": True, "trace": True, "models": False, "errors": False, "stories": True,
    }  # fmt: skip
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]


def test_what_a_job_waited_for_stands_beside_its_bar() -> None:
    """Reasons by their shares of the wait; profiling is no part of it."""
    told = [
        (Action.PROFILE, Reason.PROFILING_SLOT, 0.0),
        (Action.ENQUEUE, Reason.PROFILE_COMPLETE, 200.0),
        (Action.WAIT, Reason.GPUS_BUSY, 200.0),
        (Action.WAIT, Reason.GPUS_FRAGMENTED, 800.0),
        (Action.START, Reason.EXCLUSIVE_GPUS, 1000.0),
    ]
    decisions = [
        Decision(i, at, action, reason, job_id="a", vc="vc")
        for i, (action, reason, at) in enumerate(told)
    ]
    job = JobFacts("a", 4, 0.0, 50.0, end_time=1050.0, jct_s=1050.0, queue_s=1000.0)
    said = _because(build_story(job, decisions))
    assert said == ("75 % too few GPUs free and 25 % free GPUs on too many nodes")
    assert _because(build_story(job, [*decisions[:3], decisions[-1]])) == "too few GPUs free"
    third = Decision(9, 900.0, Action.WAIT, Reason.BEHIND_HIGHER_PRIORITY, job_id="a", vc="vc")
    three = _because(build_story(job, [*decisions[:4], third, decisions[-1]]))
    assert three.endswith("12 % other reasons"), "the shares add up"


def test_what_started_a_job_is_who_left_its_gpus_then(comparison: Comparison) -> None:
    """Brute force over the record: who ended in that moment, on one of its GPUs."""
    run = comparison.own
    schedule = read_schedule(run)
    rows = run.decisions(
        ["seq", "time", "action", "job_id", "nodes", "gpus"], ["start", "pack"]
    ).to_pylist()
    got = {
        row["job_id"]: {
            (node, gpu)
            for node, mask in zip(row["nodes"], row["gpus"], strict=True)
            for gpu in range(64)
            if mask >> gpu & 1
        }
        for row in rows
    }
    ends = {row["job_id"]: row["end_time"] for row in run.jobs.to_pylist()}
    named = 0
    for job in list(got)[:400]:
        story = read_story(run.folder, job)
        began = story.job.start_time
        assert began is not None
        left = {
            other
            for other, at in ends.items()
            if other != job and at and abs(at - began) < 0.002 and got.get(other, set()) & got[job]
        }
        said = started(story.job, story.sharing, schedule)
        assert bool(said) == bool(left)
        assert all(f"job {other}" in said for other in left)
        named += bool(left)
    assert named >= 5
