"""Commands on a service's database find the one that runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.app import app
from pipeline.errors import UserError
from pipeline.serving import database_served, noted


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PELLUCID_DATABASE", raising=False)


def test_tokens_are_of_the_service_that_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    run = CliRunner()
    made = run.invoke(app, ["token", "create", "ada", "--vc", "early", "--database", url])
    assert made.exit_code == 0, made.output
    assert len(made.stderr.splitlines()) == 1
    with noted(url):
        assert database_served() == url
        listed = run.invoke(app, ["token", "list"])
    assert "ada" in listed.output
    assert database_served() is None
    with noted(url, asks=False):
        none = run.invoke(app, ["token", "create", "grace"])
    assert "names no virtual cluster (--vc), so it can submit nowhere" in none.stderr
    assert "The service that runs asks for no token" in none.stderr


def test_what_does_not_run_any_more_is_not_found_and_several_are_to_be_chosen_from(
    tmp_path: Path,
) -> None:
    notes = tmp_path / "state/pellucid/serves"
    with noted("sqlite:///a.db"):
        alive = (notes / str(os.getpid())).read_text()
        (notes / "1").write_text(alive)  # of another process by now
        assert database_served() == f"sqlite:///{Path('a.db').absolute()}"
        assert not (notes / "1").exists()
        (notes / f"0{os.getpid()}").write_text(alive.replace("a.db", "b.db"))
        with pytest.raises(UserError, match=r"a\.db.*b\.db"):
            database_served()
    with noted("postgresql://ada:secret@db/x"):
        assert not list(notes.iterdir()) or "secret" not in "".join(
            note.read_text() for note in notes.iterdir()
        )
