"""Messages to owners, as the site's program is called."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.assembly import CoreSpec
from scheduler.backends.events import Event, Kind
from scheduler.backends.simulated import JobOutcome
from scheduler.core.cluster import ClusterSpec
from scheduler.service.decide.begin import NOTICED, begin
from scheduler.service.log import notices
from scheduler.service.log.notices import (
    LAG,
    LEASE,
    LEASE_S,
    Notice,
    _decided,
    _sent,
    due,
    keep_notifying,
)
from scheduler.service.settings import Settings
from scheduler.simulation.work import Work
from tests.scheduler.service.pages.conftest import Lived
from tests.waiting import until

PROGRAM = """#!/bin/sh
{ printf '%s|' "$@"; cat; echo ==; } >> "$(dirname "$0")/sent"
case "$2" in *fails*) exit 3;; esac
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "mail"
    path.write_text(PROGRAM, "utf-8")
    path.chmod(0o755)
    return path


def _lives(lived: Lived, **asked: object) -> str:
    job = lived.submit("ada.byron", **asked)
    lived.settle(4000)
    assert lived.see("ada.byron").job(job).ended_at
    return job


def _runs_once(lived: Lived, program: Path, cursor: Path, over: Iterator[bool]) -> None:
    database = str(lived.store.engine.url.render_as_string(False))
    keep_notifying(database, str(program), cursor, lambda _: next(over))


def test_an_owner_who_asked_is_sent_the_start_and_the_end(lived: Lived) -> None:
    lived.settle(1)
    before = lived.store.last_seq()
    _lives(lived, name="silent")
    job = _lives(lived, name="loud", notify=True)
    found = list(due(lived.store, before, lived.store.last_seq()))
    state = lived.see("ada.byron").job(job).state
    assert [(one.owner, one.subject) for one in found] == [
        ("ada.byron", f"Pellucid job loud ({job}) has started"),
        ("ada.byron", f"Pellucid job loud ({job}) has ended: {state}"),
    ]
    assert f"pellucid logs {job} prints its output." in found[1].text
    assert list(due(lived.store, found[1].seq, lived.store.last_seq())) == []


def test_the_end_of_a_job_that_never_ran_is_sent_and_why(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = JobOutcome(Work(1.0), refused="cannot execute '/no/such/prog'")
    monkeypatch.setattr(lived.world, "_truth", lambda _: refused)
    bad = lived.submit("ada.byron", notify=True)
    lived.settle(100)
    held = lived.submit("ada.byron", notify=True)
    lived.app.state.changes.append(Kind.HELD, "olga", held, operator=True)
    lived.app.state.changes.cancel(lived.viewer("olga"), lived.see("olga").job(held))
    lived.settle(10)
    found = list(due(lived.store, 0, lived.store.last_seq()))
    assert [one.subject for one in found] == [
        f"Pellucid job {bad} has ended: failed",
        f"Pellucid job {held} has ended: cancelled",
    ]
    assert "Why: cannot execute '/no/such/prog'." in found[0].text
    assert not any("prints its output" in one.text for one in found)


def test_each_is_sent_once_through_restarts_and_failures(
    lived: Lived, program: Path, tmp_path: Path
) -> None:
    lived.settle(1)
    database, cursor = str(lived.store.engine.url.render_as_string(False)), tmp_path / "seq"

    def runs(ready: object) -> None:
        over = threading.Event()
        thread = threading.Thread(
            target=keep_notifying,
            args=(database, str(program), cursor, lambda _: over.wait(0.01)),
        )
        thread.start()
        until(ready, "the messages")  # type: ignore[arg-type]
        over.set()
        thread.join()

    def sent() -> list[str]:
        file = program.with_name("sent")
        return file.read_text("utf-8").split("==\n")[:-1] if file.exists() else []

    _lives(lived, name="before the first call", notify=True)
    runs(cursor.exists)
    assert sent() == []
    _lives(lived, name="fails", notify=True)
    _lives(lived, name="$(touch x) -r", notify=True)
    runs(lambda: len(sent()) >= 4)
    runs(lambda: int(cursor.read_text("ascii")) == _decided(lived.store))
    assert len(sent()) == 4
    assert sent()[2].startswith("-s|Pellucid job $(touch x) -r (")
    assert not list(tmp_path.glob("x"))


@pytest.mark.parametrize("owner", ["-r", "|sh", "/etc/passwd", "+inbox", "a\0b"])
def test_an_owner_that_mail_would_read_as_no_name_is_sent_nothing(
    program: Path, owner: str
) -> None:
    assert _sent(str(program), Notice(1, owner, "subject", "text"))
    assert not program.with_name("sent").exists()
    assert _sent("/nowhere/mail", Notice(1, "ada", "subject", "text"))


def test_what_was_sent_before_it_died_is_not_sent_again(
    lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lives(lived, notify=True)
    cursor, sent = tmp_path / "seq", list[str]()
    cursor.write_text("0", "ascii")

    def send(_: str, notice: Notice, meanwhile: object) -> str:
        sent.append(notice.subject)
        if len(sent) == 2:
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr(notices, "_sent", send)
    with pytest.raises(KeyboardInterrupt):
        _runs_once(lived, tmp_path, cursor, iter([False]))
    held = lived.store.holder(LEASE)
    assert held is not None
    assert held.for_s == LEASE_S <= 10, "who died is waited for no longer"
    lived.store.let_go(held)
    _runs_once(lived, tmp_path, cursor, iter([False, True]))
    assert sent[0].endswith("has started")
    assert "has ended" in sent[1]
    assert sent[1:] == [sent[1]] * 2


def test_an_end_that_no_pass_has_covered_yet_is_not_passed_over(
    lived: Lived, program: Path, tmp_path: Path
) -> None:
    job = lived.submit("ada.byron", name="loud", notify=True)
    lived.settle(1)
    ended = Event(Kind.ENDED, lived.world.now(), job, body={"attempt": 1})
    [ended] = lived.store.append([ended])
    cursor, over = tmp_path / "seq", iter([False, True])
    cursor.write_text("0", "ascii")
    _runs_once(lived, program, cursor, over)
    assert 0 < int(cursor.read_text("ascii")) < ended.seq


def test_of_two_services_on_a_database_one_sends(
    lived: Lived, program: Path, tmp_path: Path
) -> None:
    _lives(lived, notify=True)
    lived.store.take("notices", "another", 60.0)
    cursor = tmp_path / "seq"
    cursor.write_text("0", "ascii")
    _runs_once(lived, program, cursor, iter([False] * LAG + [True]))
    assert not program.with_name("sent").exists()
    assert int(cursor.read_text("ascii")) == 0, "what the other may not have sent yet"
    _runs_once(lived, program, cursor, iter([False] * (LAG + 1) + [True]))
    assert int(cursor.read_text("ascii")) == _decided(lived.store), "long sent by the other"


def test_what_the_program_prints_is_not_kept(program: Path) -> None:
    program.write_text("#!/bin/sh\nhead -c 200000000 /dev/zero\n", "utf-8")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _sent(str(program), Notice(1, "ada", "subject", "text")) == ""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_program_that_hangs_is_killed_with_what_it_began_and_keeps_the_lease(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text('#!/bin/sh\nsleep 600 &\necho $! > "$0.child"\nsleep 600\n', "utf-8")
    monkeypatch.setattr(notices, "POLL_S", 0.1)
    monkeypatch.setattr(notices, "LONGEST_S", 0.5)
    kept = list[int]()
    why = _sent(str(program), Notice(1, "ada", "subject", "text"), lambda: kept.append(1))
    assert "longer than 0.5 s" in why
    assert len(kept) == 5
    child = Path("/proc", program.with_name("mail.child").read_text().strip(), "stat")
    until(lambda: not child.exists() or " Z " in child.read_text(), "its child's end")


def test_the_first_service_counts_before_any_job_could_start(tmp_path: Path) -> None:
    database, state = f"sqlite:///{tmp_path}/service.db", tmp_path / "state"
    settings = Settings(
        database=database, state_dir=state, backend="simulated", mail_program="/usr/bin/true"
    )
    begin(settings, CoreSpec.of(ClusterSpec({"vc": 1}, 4), "fifo"))
    assert (state / NOTICED).read_text("ascii") == "0"
