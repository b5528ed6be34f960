"""The first page of `make demo`, and that what is prebuilt is what the pipeline makes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from features.job import Profile
from features.rows import Rows, training_rows
from models.bundle import Bundle
from models.training.evaluation import tail_auc
from pipeline.commands import replay
from pipeline.demo import first, installing
from pipeline.report import month
from pipeline.report.build import Inputs, build
from pipeline.report.paired import AHEAD, BEHIND, LEVEL
from pipeline.stages import common, ingest, simulate, train
from pipeline.traces.synthetic import generate as synthetic
from scheduler.explain.words import duration

ROOT = Path(__file__).resolve().parents[2]
PREBUILT = ROOT / first.PREBUILT


TOLERANCE = 1e-3  # of ln(1 + seconds): a thousandth of a duration
COUNTS = {name: np.arange(300.0) % 7 for name in ("jobs", "gpus")}  # of ten minutes each


@pytest.fixture(scope="module")
def made() -> tuple[Rows, float, Bundle]:
    """The rows of the embedded trace, where its test days begin, and what is trained on it now."""
    params = common.read_params(ROOT / "params.yaml")
    trace = synthetic.generate(synthetic.default_config(params.ingest.scale, params.ingest.seed))
    cut = common.test_from(trace.column("submit_time"), params.train.test_days)
    rows = training_rows(trace, families=params.features.families).agreed()
    wanted = params.train
    pairs = train.read_measured(wanted.pairs, wanted.seed, wanted.sharing)
    beside = train.Beside(arrivals=train.arrivals_before(trace, cut))
    now = train.fit(rows, cut, pairs, preset=wanted.preset, seed=wanted.seed, beside=beside)
    return rows, cut, now


def test_the_prebuilt_predict_what_is_trained_now(made: tuple[Rows, float, Bundle]) -> None:
    """Whatever the processor. Where this fails: dvc repro; python -m pipeline.demo.first --keep."""
    rows, _, now = made
    before = Bundle.load(PREBUILT / "bundle")
    assert before.parts == now.parts
    assert before.duration.term_names == now.duration.term_names
    scores = [bundle.duration.score_batch(rows.X) for bundle in (before, now)]
    assert np.abs(scores[0] - scores[1]).max() < TOLERANCE
    for util in (5.0, 40.0, 75.0, 95.0):
        own, other = Profile(util, util / 2, 4000.0, True), Profile(60.0, 30.0, 9000.0, False)
        assert before.packing.classify(own)[0] == now.packing.classify(own)[0]
        speeds = [bundle.pair_speed(own, other) for bundle in (before, now)]
        assert speeds[0] == pytest.approx(speeds[1], abs=TOLERANCE)
    coming = [bundle.arrivals.forecast(COUNTS, 0.0, "jobs", "soon") for bundle in (before, now)]
    assert coming[0].mean == pytest.approx(coming[1].mean, rel=TOLERANCE)


def test_the_prebuilt_models_were_trained_on_the_rows_that_the_code_makes_now(
    made: tuple[Rows, float, Bundle],
) -> None:
    said, now = (
        bundle.metadata["duration"] for bundle in (Bundle.load(PREBUILT / "bundle"), made[2])
    )
    assert now["running"] > 0
    for name in ("rows", "running", "window_from", "window_to", "settings", "seed"):
        assert said[name] == now[name]


def test_the_prebuilt_errors_are_of_the_prebuilt_models(made: tuple[Rows, float, Bundle]) -> None:
    rows, cut, _ = made
    said = json.loads((PREBUILT / first.ERRORS).read_text())
    test = rows.where((rows.time >= cut) & np.isfinite(rows.y))
    model = Bundle.load(PREBUILT / "bundle").duration
    assert said["test_jobs"] == len(test)
    assert said["candidate_tail_auc"] == pytest.approx(tail_auc(test)(model), abs=TOLERANCE)
    assert {foil["job_id"] for foil in said["foils"]} <= set(test.job_id)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The first page and the last of the same parameters; of a small trace and six draws."""
    params = common.read_params(ROOT / "params.yaml")
    params.ingest.scale = "small"
    params.cluster = ROOT / "pipeline/worlds/clusters/small.yaml"
    params.train.test_days = 2
    params.simulate.policies = ["fifo", "pellucid"]
    params.simulate.draws = 6
    seen: list[tuple[int, int]] = []
    folder = tmp_path_factory.mktemp("pages")
    page = first.run(params, PREBUILT, folder, lambda done, of: seen.append((done, of)))
    assert seen[-1] == (2 * first.DRAWS, 2 * first.DRAWS)
    bundle, whole = PREBUILT / "bundle", folder / "whole"
    ingest.draw(params, whole / "draws")
    given = {"trace": folder / "trace", "draws": whole / "draws", "bundle": bundle}
    simulate.compared(params, **given, out=whole / "runs", shown=common.unseen)
    asked = Inputs(whole / "runs", bundle, folder / "trace", tried=2, public=True)
    return {"first": page.read_text(), "last": build(asked).html}


VERDICT = re.compile(r"\b(ahead|behind|level) on the mean|beyond chance|beyond the 95", re.I)


def test_a_first_page_is_made_of_the_prebuilt(pages: dict[str, str]) -> None:
    html = pages["first"]
    assert "3 draws, 3 more coming" in html
    assert Bundle.load(PREBUILT / "bundle").digest[:12] in html
    for section in ("jobs", "policies", "models", "limits"):
        assert f'<section id="{section}">' in html


def test_the_first_page_and_the_last_do_not_contradict_each_other(pages: dict[str, str]) -> None:
    """The first gives no verdict and says what is coming; both explain the same decisions."""
    assert contradictions(pages["first"], pages["last"]) == []
    assert "No verdict yet; 6 draws are coming." in seen(pages["first"])
    assert VERDICT.search(seen(pages["last"]))


@pytest.mark.parametrize(
    ("page", "was", "planted"),
    [
        ("first", r"is so far ahead in \d", "is so far ahead in 0"),
        ("first", r"No verdict yet", "Level on the mean"),
        ("last", r"; (?:ahead|behind|level) on the mean", "; behind on the mean"),
        ("last", r"(ahead in \d of )6 draws", r"\g<1>7 draws"),
        ("last", r"(why job \S+ picked for its gain, waited )\S+ \S+", r"\g<1>9 d"),
        ("last", r"23,859 jobs", "23,858 jobs"),
        ("last", r'"beside":\[', '"beside":[9'),
        ("last", r"95 % interval −\d+ %", "95 % interval +1 %"),
    ],
)
def test_a_planted_contradiction_is_found(
    pages: dict[str, str], page: str, was: str, planted: str
) -> None:
    changed = re.sub(was, planted, pages[page], count=1)
    assert changed != pages[page]
    assert contradictions(**{**pages, page: changed})


AGAINST = re.compile(
    r"Against ([\w-]+)(?: \([^)]*\))?, pellucid is (so far )?ahead in (\d+) of (\d+) draws"
    r"(?:, the same in \d+)?(?:; (ahead|behind|level) on the mean)?: "
    r"(?:mean time from submission to end )?([^ ]+) %"
    r"(?:, 95 % interval | \()([^ ]+) % to ([^ ]+) %"
)
SHARED = (
    r"job (\S+), picked for its gain, waited (\S.*?) under pellucid and (\S.*?) under fifo",
    r"(Every GPU under \w+)", r"(23,859 jobs on 1,080 GPUs)",
    r"asked then (At .*?: It needs.*?) Why it was predicted",
)  # fmt: skip


def contradictions(first: str, last: str) -> list[str]:
    """What the first page and the last say that cannot both hold, and what either says of itself:
    a verdict without its draws or against its interval, a wait that its data do not have.
    """
    said = {"first": seen(first), "last": seen(last)}
    found = [f"first: a verdict before all draws: {m[0]}" for m in VERDICT.finditer(said["first"])]
    tallies = {}
    for name, text in said.items():
        compared = list(AGAINST.finditer(text))
        if not compared:
            found.append(f"{name}: no comparison that names its draws and interval")
        for one in compared:
            rival, open_, ahead, draws, verdict, *ends = one.groups()
            tallies[name, rival] = int(ahead), int(draws)
            mean, low, high = (float(end.replace("−", "-")) for end in ends)
            sure = AHEAD if high < 0 else BEHIND if low > 0 else LEVEL
            if not low <= mean <= high or verdict != (None if open_ else sure):
                found.append(f"{name}: {one[0]}")
            if f"simulated, {draws} draw" not in text:
                found.append(f"{name}: {draws} draws, and another number above")
        found += [f"{name}: {line}" for line in _of_its_data(first if name == "first" else last)]
    for (name, rival), (early, few) in tallies.items():
        late, all_ = tallies.get(("last", rival), (early, few))
        if name == "first" and not early <= late <= early + all_ - few:
            found.append(f"ahead of {rival} in {early} of {few} draws, then in {late} of {all_}")
    for about in SHARED:
        sooner, later = (re.search(about, text) for text in said.values())
        if sooner is None or later is None or sooner.groups() != later.groups():
            found.append(f"only one says {about}")
    return found


def _of_its_data(html: str) -> list[str]:
    """What the lead says of its job, and the data behind the page do not."""
    columns, each = (
        json.loads(re.findall(rf'id="{name}">(.*?)</script>', html, re.DOTALL)[0])
        for name in ("columns", "each-job")
    )
    lead = re.search(SHARED[0], seen(html))
    assert lead is not None
    at = columns["id"].index(lead[1])
    results = [columns["results"][i] for i in each["beside"] if i < len(columns["results"])]
    waits = {result["name"]: duration(result["wait"][at]) for result in results}
    says = {"pellucid": lead[2], "fifo": lead[3]}
    return [f"{lead[0]}: its data say {waits}"] if waits != says else []


def seen(html: str) -> str:
    """What is read on a page: its text without styles and scripts."""
    body = re.sub(r"<(style|script)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_the_public_month_is_that_of_the_readme() -> None:
    rows = re.findall(r"^\| .*?\| \**([\d,]+) s\** \| \**([\d,]+) s\** \| \**(\d+) h\** \|",
                      (ROOT / "README.md").read_text(), re.MULTILINE)  # fmt: skip
    shown = [(f"{row.jct_s:,}", f"{row.queue_s:,}", str(row.longest_h)) for row in month.ROWS]
    assert shown == rows


def test_what_asks_the_own_history_stands_first_and_is_the_commands_own_example(
    pages: dict[str, str],
) -> None:
    for html in pages.values():
        text = seen(html)
        assert text.count(month.OWN) == 1
        assert text.index(month.OWN) < text.index("What the words mean")
    for part in month.OWN.split(" && "):
        assert part.removeprefix(".venv/bin/") in (replay.replay.__doc__ or "")


def test_it_loads_no_training_library() -> None:
    heavy = ["interpret", "sklearn", "lightgbm", "mlflow", "torch", "matplotlib", "dvc", "pandas"]
    said = subprocess.run(
        [sys.executable, "-c",
         f"import sys, pipeline.demo.first; print([m for m in {heavy} if m in sys.modules])"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert said.strip() == "[]"


def test_an_installer_that_is_silent_is_spoken_for(capfd: pytest.CaptureFixture[str]) -> None:
    asked = [sys.executable, "-c", "import time; time.sleep(0.5); raise SystemExit(3)"]
    assert installing.run(asked, every_s=0.1) == 3
    assert "packages installed" in capfd.readouterr().out
