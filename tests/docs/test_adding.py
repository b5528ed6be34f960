"""What outsiders are told to do works as written, from a folder outside the repository."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scheduler.assembly import CoreSpec
from scheduler.core.cluster import ClusterSpec
from scheduler.service.backends import open_backend
from scheduler.service.log.header import LogHeader
from scheduler.service.settings import Settings, SettingsError, read_settings
from scheduler.testing.policy import PolicyContract
from tests.docs.walk import commands, files, shell, walk, walked


@walked
def test_a_policy_in_a_file_of_its_own(tmp_path: Path) -> None:
    for name, text in files("adding-a-trace-format.md").items():
        (tmp_path / name).write_text(text)
    shell(commands("adding-a-trace-format.md")[-1], tmp_path)  # makes a trace to play on
    used, suite = walk("adding-a-policy.md", tmp_path, TRACE=str(tmp_path / "trace"))
    assert "aged" in used
    assert "weight=4.0 GPUs" in used
    assert " passed" in suite
    assert "failed" not in suite


def test_the_policy_of_the_page_counts_with_predictions_that_have_a_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OfThePage(PolicyContract):
        name = "aged:Aged"

    (tmp_path / "aged.py").write_text(files("adding-a-policy.md")["aged.py"])
    monkeypatch.syspath_prepend(tmp_path)
    OfThePage().test_counts_with_predictions_that_have_a_curve()


@walked
def test_a_trace_format_in_a_file_of_its_own(tmp_path: Path) -> None:
    suite, ingested = walk("adding-a-trace-format.md", tmp_path)
    assert " passed" in suite
    assert "failed" not in suite
    assert "frontier" in ingested
    summary = json.loads((tmp_path / "trace" / "summary.json").read_text())
    assert (summary["kept"], summary["quarantined"]) == (2, {"bad_gpus": 1})


@walked
def test_a_backend_in_a_file_of_its_own(tmp_path: Path) -> None:
    (suite,) = walk("adding-a-backend.md", tmp_path)
    assert " passed" in suite
    assert "failed" not in suite


@pytest.mark.parametrize(
    ("backend", "why"),
    [("nowhere", "simulated, local, slurm or module:function"), ("nowhere:x", "'nowhere'")],
)
def test_a_backend_that_is_not_there_is_refused_in_one_line(backend: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as caught:
        read_settings(backend=backend)
    assert "\n" not in str(caught.value)


def test_the_service_opens_a_backend_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files("adding-a-backend.md").items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    settings: Settings = read_settings(
        backend="site_backend:open_backend", fake_gpus=True, state_dir=tmp_path
    )
    cluster = ClusterSpec({"vc": 1}, 4)
    header = LogHeader(CoreSpec.of(cluster, "fifo"), 0.0, backend=settings.backend)
    backend = open_backend(settings, header)
    try:
        assert backend.name == "threaded"
        assert backend.begun() == frozenset()
    finally:
        backend.close()
