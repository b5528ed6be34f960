"""What a job uses of its GPUs is sampled by the host, bounded, and kept over a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.backends.base import Launch, Purpose
from scheduler.backends.local import sampling, usage
from scheduler.backends.local.backend import LocalBackend
from scheduler.backends.local.host import Host
from scheduler.backends.local.spool import name_of
from scheduler.backends.local.usage import MOST, Series, read_usage
from scheduler.testing.backend import Does, await_start
from tests.profiler.fake_nvml import NOT_SUPPORTED, FakeGpu, FakeNvml
from tests.scheduler.backends.test_local import ThisHost
from tests.waiting import until


@pytest.fixture
def nvml() -> FakeNvml:
    gpus = (FakeGpu(f"GPU-{name}", processes={}, used_mib=1000.0) for name in "ab")
    return FakeNvml(*gpus)


@pytest.fixture
def site(tmp_path: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThisHost]:
    monkeypatch.setattr(usage, "EVERY_S", 0.1)
    monkeypatch.setattr(sampling, "SAVE_S", 0.1)
    made = ThisHost(tmp_path, Host.here([2], nvml), nvml)
    yield made
    made.close()


def stays(site: ThisHost, *gpus: int) -> Launch:
    return Launch("j", 1, Purpose.RUN, site.command(Does.STAYS), (0,), (gpus,))


def sampled(backend: LocalBackend, site: ThisHost, samples: int) -> Series:
    found: list[Series] = []

    def enough() -> bool:
        backend.heard(backend.news())
        backend.acknowledge(backend.reports(0.1))
        kept = read_usage(site.folder / "spool", "j", 1)
        found.extend([kept] if kept else [])
        return kept is not None and sum(span.samples for span in kept.spans) >= samples

    until(enough, f"{samples} samples")
    return found[-1]


def test_a_running_job_is_sampled_and_goes_on_being_so_after_a_restart(
    site: ThisHost, nvml: FakeNvml
) -> None:
    backend = site.open()
    backend.launch(stays(site, 0, 1))
    backend.heard(backend.news())  # which GPUs answer
    await_start(backend, site, "j")
    seen = sampled(backend, site, 2)
    assert seen.gpus == 2
    assert (seen.spans[0].util_pct, seen.spans[0].mem_used_mib) == (80.0, 1000.0)
    assert seen.spans[0].power_w == 500.0, "of both together"
    nvml.gpus[0].used_mib = 2000.0
    again = sampled(site.open(), site, sum(span.samples for span in seen.spans) + 2)
    assert again.start == seen.start
    assert max(span.mem_used_mib or 0 for span in again.spans) == 2000.0
    assert site.backend is not None
    path = site.backend.output("j", 1)
    assert path.with_suffix(usage.SUFFIX).exists(), "it lies, and goes, with the output"


def test_what_a_gpu_does_not_say_is_left_out(site: ThisHost, nvml: FakeNvml) -> None:
    for gpu in nvml.gpus:
        gpu.refuses["nvmlDeviceGetUtilizationRates"] = NOT_SUPPORTED  # as MIG does
    backend = site.open()
    backend.launch(stays(site, 0))
    backend.heard(backend.news())  # which GPUs answer
    await_start(backend, site, "j")
    span = sampled(backend, site, 1).spans[0]
    assert span.util_pct is None
    assert span.mem_used_mib == 1000.0


def test_a_month_takes_as_much_room_as_an_hour(tmp_path: Path) -> None:
    series, at = Series(0.0, 4), 0.0
    readings = {"util_pct": 50.0, "mem_used_mib": 40_000.0, "power_w": 300.25}
    sizes = []
    for i in range(30 * 1440):
        series.add(at, [{**readings, "mem_used_mib": 70_000.0 if i == 1234 else 40_000.0}] * 4)
        at += 60.0
        if i in (59, 30 * 1440 - 1):
            sizes.append(len(json.dumps(series.record())))
    assert len(series.spans) <= MOST
    assert max(sizes) < 16_384
    assert series.step_s * MOST >= 30 * 86_400
    assert {span.util_pct for span in series.spans} == {50.0}
    assert sum(span.samples for span in series.spans) == 30 * 1440
    assert max(span.mem_used_mib or 0 for span in series.spans) == 70_000.0, "a peak stays"
    assert Series.of(json.loads(json.dumps(series.record()))).record() == series.record()


@pytest.mark.parametrize("content", ["", "[]", '{"start": 1}', '{"start": "x", "spans": [1]}'])
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / f"{name_of('j', 1)}{usage.SUFFIX}").write_text(content)
    assert read_usage(tmp_path, "j", 1) is None
    assert read_usage(tmp_path, "of nobody", 1) is None
