"""Damaged pages are a state: named at the start and while it runs, and a backup puts it right."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import make_url
from sqlalchemy.exc import DatabaseError

from scheduler.service.app import create_app
from scheduler.service.log.restore import Restore
from scheduler.service.log.store import soundness
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.soundness import Damage, Soundness, is_damage, keep_looking
from scheduler.service.log.store.store import Store, StoreError
from scheduler.service.settings import Settings
from tests.pipeline.test_bad_inputs import one_line
from tests.scheduler.service.desk import Desk

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A database with something in it, that nobody uses."""
    file = tmp_path / "state" / "pellucid.db"
    file.parent.mkdir(mode=0o700)
    store = Store(f"sqlite:///{file}")
    prepare(store)
    desk = Desk(store, tmp_path / "state")
    for i in range(60):
        desk.submit(f"job-{i}", comment="x" * 400)
        desk.turn()
    store.close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return file


def pages_of(file: Path, table: str) -> list[int]:
    """Pages that hold a table, from 1; by its root, where no table of pages is compiled in."""
    with closing(sqlite3.connect(file)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        return [page for (page,) in connection.execute(query, (table,))]


def spoil(file: Path, page: int) -> None:
    with file.open("r+b") as opened:
        opened.seek((page - 1) * 4096)
        opened.write(b"\xde\xad" * 2048)


def cli(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.cli", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("table", ["events", "jobs", "decisions", "leases"])
def test_a_damaged_table_is_named(made: Path, table: str) -> None:
    known = Soundness(f"sqlite:///{made}")
    assert known.look() == []
    for page in pages_of(made, table):
        spoil(made, page)
    [found] = known.look()
    assert found.where == f"table {table}"
    assert found.what
    assert "\n" not in found.sentence()


def test_a_large_table_is_read_in_pieces(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "PIECE_S", -1.0)
    monkeypatch.setattr(soundness, "STEPS", 1)
    monkeypatch.setattr(soundness, "ROWS", 7)
    known, pauses = Soundness(f"sqlite:///{made}"), list[bool]()
    assert known.look(lambda: bool(pauses.append(True))) == []
    assert len(pauses) > 60 / 7
    for page in pages_of(made, "events"):
        spoil(made, page)
    assert "table events" in [one.where for one in known.look()]


def test_its_first_page_names_the_file(made: Path) -> None:
    spoil(made, 1)
    [found] = Soundness(f"sqlite:///{made}").look()
    assert "page 1" in found.where


def test_another_database_is_not_looked_at(tmp_path: Path) -> None:
    for url in ("postgresql+psycopg://u@h/d", "sqlite://", f"sqlite:///{tmp_path / 'none'}"):
        known = Soundness(url)
        assert known.look() == []
        known.note(Damage("x", "y", 1.0))
        known.note(None)
        assert known.damage() is None
    assert not list(tmp_path.iterdir())


def test_what_was_found_is_known_to_all_until_it_is_sound(made: Path) -> None:
    known, url = Soundness(f"sqlite:///{made}"), f"sqlite:///{made}"
    whole = made.read_bytes()
    spoil(made, pages_of(made, "events")[0])
    keep_looking(url, lambda s: s > 1.0)
    found = known.damage()
    assert found is not None
    assert found.where == "table events"
    made.write_bytes(whole)
    keep_looking(url, lambda s: s > 1.0)
    assert known.damage() is None


def test_ready_names_the_table_and_what_to_do(made: Path) -> None:
    store = Store(f"sqlite:///{made}")
    app = create_app(Settings(database=f"sqlite:///{made}", state_dir=made.parent), store=store)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert "damaged" not in client.get("/ready").text
        Soundness(store.engine.url).note(Damage("table events", "Tree 5 page 17: broken", 1.0))
        answer = client.get("/ready")
        assert answer.status_code == 503
        said = answer.json()["detail"]
        assert said.startswith("the database is damaged: table events: Tree 5 page 17")
        assert "pellucid restore" in said
        assert client.get("/health").status_code == 200
    store.close()


def test_an_error_of_damage_is_told_from_others(made: Path) -> None:
    for page in pages_of(made, "events"):
        spoil(made, page)
    store = Store(f"sqlite:///{made}")
    with pytest.raises(DatabaseError) as error:
        list(store.each(0))
    assert is_damage(error.value)
    assert not is_damage(sqlite3.OperationalError("database is locked"))
    assert not is_damage(OSError("malformed"))
    store.close()


def test_audit_and_serve_say_it_in_a_line(made: Path) -> None:
    for page in pages_of(made, "events"):
        spoil(made, page)
    where = "--database", f"sqlite:///{made}", "--state-dir", str(made.parent)
    status, said = cli("audit", *where)
    assert status == 1
    assert "damaged: table events" in said
    assert "Traceback" not in said
    spoil(made, 1)
    status, said = cli("audit", *where)
    assert (status, one_line(said)) == (2, True), said
    status, said = cli("serve", "--backend", "simulated", "--port", "0", *where)
    assert status == 2
    assert "Traceback" not in said
    assert "damaged" in said or "not a database" in said


def test_a_backup_is_put_where_the_damage_was(made: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    with closing(sqlite3.connect(made)) as connection:
        connection.execute(f"VACUUM INTO '{backup / 'pellucid.db'}'")
    (backup / "bundles" / "abc").mkdir(parents=True)
    (backup / "bundles" / "abc" / "bundle.json").write_text("{}")
    for page in pages_of(made, "events"):
        spoil(made, page)
    damaged, sound = made.read_bytes(), (backup / "pellucid.db").read_bytes()
    url = f"sqlite:///{made}"
    Soundness(url).note(Damage("table events", "x", 1.0))
    where = "--database", url, "--state-dir", str(made.parent)
    status, said = cli("restore", str(backup), *where)
    assert status == 0, said
    assert "nothing was changed" in said
    assert "sound" in said
    assert made.read_bytes() == damaged
    status, said = cli("restore", str(backup), *where, "--apply")
    assert status == 0, said
    assert Soundness(url).damage() is None
    assert Soundness(url).look() == []
    [kept] = made.parent.glob("pellucid.db.damaged-*")
    assert kept.read_bytes() == damaged
    assert (made.parent / "bundles" / "abc" / "bundle.json").exists()
    assert (backup / "pellucid.db").read_bytes() == sound
    assert {one.name for one in backup.iterdir()} == {"pellucid.db", "bundles"}
    assert made.stat().st_mode & 0o077 == 0
    status, said = cli("audit", *where)
    assert (status, said.splitlines()[-1]) == (0, "clean"), said


def test_what_is_no_backup_or_is_in_use_is_refused(made: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{made}"
    with pytest.raises(StoreError, match="No such file"):
        Restore.of(url, made.parent, tmp_path / "none")
    (tmp_path / "text").write_text("no database" * 1000)
    with pytest.raises(StoreError, match="damaged itself"):
        Restore.of(url, made.parent, tmp_path / "text")
    with pytest.raises(StoreError, match="PostgreSQL"):
        Restore.of("postgresql+psycopg://u@h/d", made.parent, made)
    copy = tmp_path / "copy.db"
    copy.write_bytes(made.read_bytes())
    found = Restore.of(url, made.parent, copy)
    code = f"import sqlite3; c = sqlite3.connect({str(made)!r}); c.execute('SELECT 1 FROM events');"
    code += "print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as user:  # type: ignore[call-overload]
        assert user.stdout is not None
        user.stdout.readline()
        with pytest.raises(StoreError, match=f"process {user.pid} uses"):
            found.apply()
        user.kill()
    assert make_url(url).database == str(found.file)
