"""A few runs of `benchmarks.chaos`: the service loses nothing, and the harness would notice."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from benchmarks.chaos.bench import Bench, quiet
from benchmarks.chaos.run import Plan


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    before = structlog.get_config()
    quiet()
    with Bench(tmp_path_factory.mktemp("chaos")) as made:
        yield made
    structlog.configure(**before)
    logging.disable(logging.NOTSET)


def test_a_seed_is_one_run(bench: Bench) -> None:
    first, again = bench.play(Plan(11)), bench.play(Plan(11))
    assert first.wrong == []
    assert first.digest == again.digest


@pytest.mark.parametrize("seed", [1])
def test_nothing_is_lost_whatever_goes_wrong(bench: Bench, seed: int) -> None:
    run = bench.play(Plan(seed))
    assert run.wrong == []
    assert run.crashes


@pytest.mark.parametrize("at", [150, 300])
def test_a_process_may_die_at_any_point(bench: Bench, at: int) -> None:
    run = bench.play(Plan(3, crash_at=(at,), calm=True))
    assert run.wrong == []
    assert run.crashes.total() == 1


def test_the_harness_notices_who_acts_before_writing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scheduler.service.decide.decider import Decider

    monkeypatch.setattr(Decider, "recover", lambda self: None)
    runs = (bench.play(Plan(3, crash_at=(at,), calm=True)) for at in (142, 160))
    assert any(run.wrong for run in runs)
