"""How far a job is, read in its output on this host: when it is said, and when not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler.progress import names
from profiler.progress.apart import Followed, Reading
from profiler.progress.names import VARIABLE, Terms
from profiler.progress.news import WIDEST, Follower
from profiler.progress.tail import Tail
from scheduler.backends.base import Happened, Launch, Purpose
from scheduler.backends.local import follow
from scheduler.backends.local.backend import LocalBackend
from scheduler.backends.local.host import Host
from scheduler.testing.backend import a_launch
from tests.scheduler.backends.test_local import sh
from tests.scheduler.backends.test_local_profiling import Lab

TRAINS = 'for i in $(seq 40); do echo "Epoch $i/40 - loss: 0.$i"; sleep 0.1; done'


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(names, "TERMS", Terms(earliest_s=0.3, least_s=0.1))
    lab = Lab(tmp_path, Host.with_fake([2]))
    yield lab
    lab.close()


def a_run(script: str = TRAINS, **more: Any) -> Launch:
    return replace(a_launch(sh(script)), progress=True, **more)


def test_a_profiling_run_says_how_long_the_job_will_run_before_it_is_over(lab: Lab) -> None:
    slow = TRAINS.replace("sleep 0.1", "sleep 0.5")  # beside which a busy host's delays are little
    lab.backend.launch(a_run(slow, purpose=Purpose.PROFILE, limit_s=4.0))
    report = lab.hear(Happened.PROGRESS)
    assert report.progress is not None
    assert report.progress.of == 40
    # on a host that is busy the lines come in bursts: tests of the reader judge the pace itself
    assert 0 < report.progress.low_s <= report.progress.total_s <= report.progress.high_s
    lab.backend.acknowledge([report])
    assert lab.hear(Happened.PROFILED).at >= report.at


@pytest.fixture
def reading() -> Iterator[Reading]:
    reading = Reading()
    yield reading
    reading.close()


def followed(
    launch: Launch, allowed: bool, output: Path, reading: Reading | None = None
) -> Followed | None:
    claim: Any = {"command": launch.command, **follow.asked_of(launch, allowed)}
    return follow.followed_of(claim, output, reading or Reading())


@pytest.mark.parametrize(
    ("change", "allowed"), [({"progress": False}, True), ({"partner": "other"}, True), ({}, False)]
)
def test_nothing_is_read_where_the_owner_or_the_site_says_no_or_the_pace_is_not_its_own(
    tmp_path: Path, change: dict[str, Any], allowed: bool
) -> None:
    assert followed(a_run(), True, tmp_path) is not None
    assert followed(replace(a_run(), **change), allowed, tmp_path) is None


def test_no_output_is_read_on_a_site_that_says_no(lab: Lab, tmp_path: Path) -> None:
    lab.close()
    lab.backend = LocalBackend(tmp_path / "spool", lab.host, reads_progress=False)
    lab.backend.launch(a_run("for i in 1 2 3 4; do echo Epoch $i/4; sleep 0.3; done"))
    heard: list[Happened] = []
    while Happened.ENDED not in heard:
        reports = lab.backend.reports(0.1)
        heard += [report.what for report in reports]
        lab.backend.acknowledge(reports)
    assert Happened.PROGRESS not in heard


def test_a_run_that_was_taken_over_is_followed_on(lab: Lab) -> None:
    lab.backend.launch(a_run())
    lab.hear(Happened.STARTED)
    lab.open()
    assert lab.hear(Happened.PROGRESS).progress is not None


def follower(path: Path) -> Follower:
    return Follower(Tail(path))


def said(found: Follower | Followed, path: Path, at_s: float, text: str) -> float | None:
    with path.open("a") as file:
        file.write(text)
    progress = found.look(at_s)
    return None if progress is None else progress.total_s


def test_only_news_is_said(tmp_path: Path) -> None:
    path, found = tmp_path / "output", follower(tmp_path / "output")
    totals = [said(found, path, 20.0 * i, f"step {10 * i}/1000\n") for i in range(1, 30)]
    heard = [total for total in totals if total is not None]
    assert heard[0] == pytest.approx(2000.0, rel=0.1)
    assert len(heard) <= 3  # the first, and what makes it surer
    slower = [said(found, path, 600 + 80.0 * i, f"step {290 + 10 * i}/1000\n") for i in range(20)]
    last = [total for total in slower if total is not None][-1]
    assert last > 1.5 * heard[0]


def test_what_makes_no_sense_any_more_is_taken_back(tmp_path: Path) -> None:
    path, found = tmp_path / "output", follower(tmp_path / "output")
    for i in range(1, 8):
        said(found, path, 20.0 * i, f"step {10 * i}/1000\n")
    progress = None
    for i in range(1, 12):  # the total grows, and again
        with path.open("a") as file:
            file.write(f"step {70 + 10 * i}/{1000 + 500 * i}\n")
        progress = found.look(140.0 + 60.0 * i) or progress
    assert progress is not None
    assert progress.error > WIDEST


def test_its_own_words_are_found_where_its_launch_has_them_and_go_before_its_output(
    tmp_path: Path, reading: Reading
) -> None:
    launch = replace(a_run(), environment={VARIABLE: "how-far"}, workdir=str(tmp_path))
    found, heard = followed(launch, True, tmp_path / "output", reading), list[float | None]()
    assert found is not None
    for i in range(1, 6):
        (tmp_path / "how-far").write_text(f"{i}/100")
        heard.append(said(found, tmp_path / "output", 20.0 * i, f"Epoch {i}/10\n"))
        assert reading.settle(30.0)
    heard.append(said(found, tmp_path / "output", 100.0, ""))
    assert [total for total in heard if total][-1] == pytest.approx(2000.0, rel=0.15)


def written(path: Path, first: int, last: int, of: int = 1000) -> None:
    with path.open("a") as file:
        file.writelines(f"step {i}/{of}\n" for i in range(first, last))


@pytest.mark.parametrize(("beside_it", "says"), [(3, 0.6), (9, 1.0)])  # never faster than alone
def test_a_pace_beside_another_is_set_against_the_pace_alone(
    tmp_path: Path, beside_it: int, says: float
) -> None:
    path = tmp_path / "output"
    follows = follower(path)
    for at in range(1, 61):  # five steps a second
        written(path, 5 * (at - 1), 5 * at)
        follows.look(at)
    beside = follows.beside(60.0, 70.0)
    assert beside is not None
    assert beside.until_s == 130.0
    assert beside.speed(60.0) is None  # nothing was written since
    for at in range(61, 131):
        written(path, 300 + beside_it * (at - 61), 300 + beside_it * (at - 60))
        speed = beside.speed(at)
    assert speed == pytest.approx(says, abs=0.02)


def test_a_pace_that_is_not_known_well_is_set_against_nothing(tmp_path: Path) -> None:
    path = tmp_path / "output"
    follows = follower(path)
    assert follows.beside(5.0, 100.0) is None  # it wrote nothing
    for at in range(1, 61):
        written(path, 5 * (at - 1), 5 * at)
        follows.look(at)
    beside = follows.beside(60.0, 100.0)
    assert beside is not None
    for at in range(61, 161):  # it counts something else
        written(path, at, at + 1, of=5000)
        assert beside.speed(at) is None


def test_a_run_beside_another_says_how_fast_it_still_is(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = names.TERMS._replace(firm=10.0)
    monkeypatch.setattr(names, "TERMS", terms)  # seconds are seen of it, not minutes
    steps = 'for i in $(seq 4000); do echo "step $i/4000"; sleep 0.01; done'
    first = a_run(steps)
    lab.backend.launch(first)
    assert lab.hear(Happened.PROGRESS).job_id == first.job_id
    second = replace(
        a_launch(sh("exec sleep 100")), job_id="second", partner=first.job_id, pair_watch_s=1.0
    )
    lab.backend.launch(second)
    report = lab.hear(Happened.PAIR_OBSERVED)
    assert (report.job_id, report.attempt) == (first.job_id, first.attempt)
    assert report.speed is not None
    assert 0.0 < report.speed <= 1.0


def test_a_run_that_is_alone_again_says_nothing_of_a_pair(lab: Lab) -> None:
    steps = 'for i in $(seq 150); do echo "step $i/150"; sleep 0.01; done'
    first = a_run(steps)
    lab.backend.launch(first)
    lab.hear(Happened.PROGRESS)
    second = replace(
        a_launch(sh("exit 0")), job_id="second", partner=first.job_id, pair_watch_s=60.0
    )
    lab.backend.launch(second)
    heard: list[tuple[str, Happened]] = []
    while (first.job_id, Happened.ENDED) not in heard:
        reports = lab.backend.reports(0.1)
        heard += [(report.job_id, report.what) for report in reports]
        lab.backend.acknowledge(reports)
    assert Happened.PAIR_OBSERVED not in [what for _, what in heard]
    assert all(a.beside is None for a in lab.backend._attempts.values())
