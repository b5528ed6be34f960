"""`pellucid compare --html`: the report on any trace that ingests, on its inferred cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from pipeline.app import app
from pipeline.errors import UserError
from tests.pipeline.test_replay import dump


def compared(trace: Path, page: Path, *options: str) -> dict[str, list[str]]:
    """Ingest, compare, and what the page's figures are drawn from."""
    ingested = page.parent / "ingested"
    run = CliRunner()
    done = run.invoke(app, ["ingest", str(trace), "--out", str(ingested)])
    assert done.exit_code == 0, done.output
    words = ["compare", "--trace", str(ingested), "--policies", "fifo,easy", "--html", str(page)]
    done = run.invoke(app, [*words, *options])
    assert done.exit_code == 0, done.output
    (text,) = re.findall(r'id="columns">(.*?)</script>', page.read_text())
    found: dict[str, list[str]] = json.loads(text)
    return found


def test_a_dump_becomes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = compared(dump(tmp_path / "dump.txt", jobs=60), page, "--json")
    assert len(found["id"]) == 60
    assert sorted(found["vcs"]) == ["long", "short"]
    assert page.stat().st_size < 5 << 19  # with the chart library
    assert not list(tmp_path.glob("**/decisions.parquet"))  # kept nowhere, as nobody asked


def test_a_page_of_runs_made_elsewhere_needs_a_folder_for_them(tmp_path: Path) -> None:
    words = ["compare", "--trace", str(tmp_path), "--html", str(tmp_path / "page.html")]
    done = CliRunner().invoke(app, [*words, "--keep", str(tmp_path / "kept")])
    assert isinstance(done.exception, UserError)
    assert "needs --out" in str(done.exception)
