"""Every command of the README: run as written, or checked and its reason for not being run told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.pages import ROOT, blocks, commands, mistake, words
from pipeline import runs
from pipeline.traces.synthetic import generate as synthetic
from pipeline.worlds import open_scenario
from tests.docs.walk import shell, walked
from tests.pipeline.test_replay import dump
from tests.waiting import until

README = ROOT / "README.md"
LINES = [
    line.partition("  #")[0].rstrip()
    for block in blocks(README, "sh")
    for line in block.splitlines()
    if line.strip()
]
# Not run here: existence and options are checked, as of every command on every page.
TOO_MUCH = {
    "make demo": "trains for minutes; its stages run in tests/pipeline/test_stages.py",
    "make test": "is what runs this",
    "make serve-demo": "needs the models of `make demo`; the service runs in test_demo.py",
    ".venv/bin/pellucid serve --backend slurm --slurm-mode advise": "needs Slurm: make slurm-test",
}
SACCT, REPLAY, EXPLAIN = "sacct ", ".venv/bin/pellucid replay ", ".venv/bin/pellucid explain "
SERVICE = tuple(f".venv/bin/pellucid {name}" for name in ("serve --fake", "submit", "ps", "why"))


def one(start: str) -> str:
    """The command that begins so; there is one."""
    (found,) = [line for line in LINES if line.startswith(start)]
    return found


def installed(line: str) -> str:
    """The command for whoever has Pellucid on the path."""
    return line.replace(".venv/bin/", "")


def test_every_command_is_run_here_or_has_its_reason() -> None:
    run = (SACCT, REPLAY, EXPLAIN, *SERVICE)
    assert [line for line in LINES if line not in TOO_MUCH and not line.startswith(run)] == []
    assert [line for line in TOO_MUCH if line not in LINES] == []
    assert [said for said in commands(README) if mistake(said)] == []


@walked
def test_any_job_of_a_run_can_be_explained(tmp_path: Path) -> None:
    synthetic.write(synthetic.default_config("small"), tmp_path / "data" / "trace")
    scenario = open_scenario(tmp_path / "data" / "trace")
    runs.run(scenario, "fifo", tmp_path / "data" / "runs" / "pellucid")
    job = scenario.workload.jobs[0].job_id
    told = shell(installed(one(EXPLAIN)).replace("JOB", job), tmp_path)
    assert job in told


@walked
def test_a_dump_is_replayed_into_a_page(tmp_path: Path) -> None:
    dump(tmp_path / "dump.txt", jobs=30)
    shell(installed(one(REPLAY)), tmp_path)
    assert "<html" in (tmp_path / "savings.html").read_text()


def test_the_dump_has_the_columns_that_the_replay_asks_for() -> None:
    asked = one(SACCT)
    assert asked.endswith("> dump.txt")
    assert asked in (ROOT / "docs" / "replay.md").read_text()
    assert "--sacct dump.txt" in one(REPLAY)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The README's service on a free port; its folder."""
    monkeypatch.setenv("PELLUCID_PORT", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PELLUCID_TOKEN", raising=False)
    words = installed(one(SERVICE[0])).split()[1:]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.cli", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://\S+:\d+", said)
        assert found, said + (tmp_path / "log").read_text()
        monkeypatch.setenv("PELLUCID_SERVER", found[0])
        yield tmp_path
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def examined(why: str, service: Path) -> str:
    """What `why` prints once the analyst has had the time for it."""

    def answer() -> str:
        printed = shell(why, service)
        return "" if "Not examined" in printed else printed

    return until(answer, "the analyst's answer")


def test_a_job_goes_through_the_service_and_the_answer_has_the_lines_that_the_page_opens_with(
    service: Path,
) -> None:
    _, submit, ps, why = (installed(one(start)) for start in SERVICE)
    submit = submit.replace("sleep 60", "sleep 600")  # still runs when a slow host asks
    first, job = (shell(submit, service).split()[0] for _ in range(2))
    assert job in shell(ps, service)
    answer = examined(why.replace("JOB", job), service)
    assert answer.startswith(f"{job} is queued")
    assert f"would start if running job {first}" in " ".join(answer.split())
    for each in (job, first):
        shell(f"pellucid cancel {each}", service)

    question, *shown = blocks(README, "text")[0].splitlines()
    assert shown[0].startswith(f"{question.split()[-1]} is queued")
    labels = {line.split("  ")[0] for line in shown if re.match(r"[A-Z][a-z ]+  ", line)}
    assert "In the way" in labels
    depends = {"Overtaken", "You could"}  # on who came later, and on what would help
    assert labels - depends <= {line.split("  ")[0] for line in answer.splitlines()}


def test_it_is_short_and_its_figures_stand_in_the_docs() -> None:
    assert words(README) < 900
    text = README.read_text()
    figures = "".join(
        (ROOT / "docs" / page).read_text() for page in ("figures.md", "policy-figures.md")
    )
    table = text[text.index("## Figures") : text.index("## What it is not")]
    said = set(re.findall(r"\d[\d,]* (?:s|h)\b", table))
    assert len(said) > 15
    assert [one for one in sorted(said) if one.split()[0] not in figures] == []
