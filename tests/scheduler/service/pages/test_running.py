"""The page of a running job: how far it is, what it writes, and what to do once it failed."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from features.progress import Progress
from scheduler.backends.local.spool import name_of
from scheduler.backends.local.usage import Series
from scheduler.service.api.output import JobOutput
from scheduler.service.log.store.rows import JobRow, Line
from scheduler.service.pages.story import JobPage, _bar
from tests.scheduler.service.pages.conftest import Lived

SAID = Progress(100.0, 90.0, 120.0, 30, 60, "epoch", 1.6, 50.0, "epoch")


def bar(now: float, *said: Progress, phase: str = "running", attempt: int = 1) -> Any:
    job: Any = SimpleNamespace(phase=phase, started_at=1000.0, attempt=attempt)
    lines = [Line(1050.0, n, "progress", "", "", body={"attempt": 1, "progress": asdict(p)})
             for n, p in enumerate(said)]  # fmt: skip
    return _bar(job, lines, now)


def test_progress_is_carried_on_to_now_and_no_further_than_its_end() -> None:
    found = bar(1075.0, SAID)
    assert found.percent == pytest.approx(75.0)
    assert found.text == "30 of 60 epochs were done 50 s after its start"
    assert bar(1010.0, SAID).percent == pytest.approx(50.0)  # never less than was printed
    assert bar(9000.0, SAID).percent == 100.0
    assert bar(1075.0, replace(SAID, total_s=1e6), SAID).percent == pytest.approx(75.0)
    assert bar(1075.0) is None
    assert bar(1075.0, SAID, phase="queued") is None
    assert bar(1075.0, SAID, attempt=2) is None  # it began again, and has printed nothing yet


@pytest.mark.parametrize(
    ("state", "end", "found"),
    [
        ("failed", 2000.0, True),
        ("out_of_memory", None, True),
        ("failed", 1500.0, False),
        ("completed", 2000.0, False),
    ],
)
def test_alone_is_suggested_after_a_failure_beside_another(
    state: str, end: float | None, found: bool
) -> None:
    page: Any = SimpleNamespace(
        job=SimpleNamespace(state=state, ended_at=2000.0),
        drawn=SimpleNamespace(story=SimpleNamespace(sharing=[SimpleNamespace(end=end)])),
    )
    assert JobPage.crowded_out.fget(page) is found  # type: ignore[attr-defined]


def test_output_is_fetched_again_while_a_job_runs(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(settings: object, job: JobRow, *, offset: int) -> JobOutput:
        return JobOutput(job.job_id, 1, "epoch 1\n", 0, 8, 8, job.ended_at is not None)

    monkeypatch.setattr("scheduler.service.pages.routes.output_of", written)
    job = lived.submit("ada.byron", name="long", gpus=1, vc="vision", profile=False)
    lived.settle(5)
    ada = lived.browser("ada.byron")
    assert f'hx-get="/jobs/{job}/tail" hx-trigger="every 3s"' in ada.get(f"/jobs/{job}").text
    part = ada.get(f"/jobs/{job}/tail", headers={"HX-Request": "true", "HX-Target": "part-tail"})
    assert part.text.strip().startswith('<div id="part-tail" hx-get=')
    assert "<html" not in part.text
    assert lived.browser("grace.hopper").get(f"/jobs/{job}/tail").status_code == 404
    lived.settle(30_000)
    over = ada.get(f"/jobs/{job}").text
    assert "every 3s" not in over
    assert f'href="/submit?again={job}"' in over


def test_what_a_job_uses_of_its_gpus_is_drawn_with_its_table(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = lived.submit("ada.byron", gpus=1)
    lived.settle(300)
    state = lived.app.state
    here = state.settings.model_copy(update={"backend": "local"})
    monkeypatch.setattr(state, "settings", here)
    path = f"/jobs/{job}"
    assert 'id="usage"' not in lived.browser("ada.byron").get(path).text
    row = lived.see("ada.byron").job(job)
    series = Series(1000.0, 1)
    for i, mib in enumerate((2048.0, 4096.0, 4096.0)):
        series.add(1000.0 + 10 * i, [{"util_pct": 40.0 + i, "mem_used_mib": mib}])
    folder = here.state_dir / "local" / "output"
    folder.mkdir(parents=True)
    kept = folder / f"{name_of(job, row.attempt)}.usage"
    kept.write_text(json.dumps(series.record()))
    page = lived.browser("ada.byron").get(path).text
    assert page.count("<figure data-chart") == 2, "there is no chart of what the driver left out"
    assert 'aria-label="GPU memory, GiB: first 2.0, most 4.0, last 4.0"' in page
    assert '<th scope="row">1970-01-01 00:16:50</th><td class="num">41</td>' in page
    assert "static/charts.js" in page
    assert lived.browser("grace.hopper").get(path).status_code == 404
