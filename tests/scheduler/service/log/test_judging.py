"""What operators propose: judged and promoted by another program, which tells how that ended."""

from __future__ import annotations

import errno
import json
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from features.codec import encode
from models.bundle import Bundle
from models.training.judging import LEAST_ROWS
from models.training.judging import LEAST_USERS as USERS
from models.training.judging import LOOKS as ALLOWED
from scheduler.service.log import judging, proposals, served
from scheduler.service.log.judging import (
    AGAIN_S,
    JOBS,
    LEAST_JOBS,
    LEAST_USERS,
    Desk,
    judged_on,
    keep_judging,
    step,
    track,
)
from scheduler.service.log.proposals import (
    BUNDLE,
    JUDGED,
    LOOKS,
    PROPOSED,
    WANTED,
    WEEK_S,
    Judged,
    NoProposal,
    Proposals,
    Proposed,
    Wanted,
    write,
)
from scheduler.service.log.store.store import Store
from tests.scheduler.service.pages.bundle import small_bundle

BETTER = {"version": "7", "better": True, "reason": "shorter waits", "compared": ["mean JCT: -3 s"]}


def never(_: float) -> bool:
    return False


def now() -> float:
    return 1.7e9


def desk(folder: Path, answer: object, status: int = 0, problem: str = "") -> Desk:
    """A program that notes how it was called, and answers so."""
    program = folder / "program"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"open({str(folder / 'called')!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
        f"print({json.dumps(answer)!r})\n"
        f"print({problem!r}, file=sys.stderr)\nsys.exit({status})\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Desk(params=folder / "params.yaml", out=folder / "out", program=(str(program),))


def called(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "called").read_text().splitlines()]


def proposed(folder: Path) -> Proposals:
    kept = Proposals(folder)
    change = [{"feature": "gpus", "monotone": 1}]
    kept.propose(small_bundle(), "0" * 64, change, by="olga", why="a test", now=1.7e9)
    return kept


def test_it_asks_for_as_many_jobs_and_looks_as_the_judge() -> None:
    assert (LEAST_JOBS, LEAST_USERS, LOOKS) == (LEAST_ROWS, USERS, ALLOWED)


def test_a_proposal_is_judged_then_promoted(store: Store, tmp_path: Path) -> None:
    kept, program = proposed(tmp_path), desk(tmp_path, BETTER)
    (one,) = kept.each()
    assert (one.state, one.proposed.by, one.proposed.why) == ("judging", "olga", "a test")
    with pytest.raises(NoProposal, match="has not been judged"):
        kept.promote(one.name, by="olga", why="", anyway=True, now=1.7e9)
    assert step(store, kept, program, clock=now, stopping=never)
    (one,) = kept.each()
    assert one.state == "better"
    assert one.judged is not None
    assert (one.judged.version, one.judged.compared) == ("7", ["mean JCT: -3 s"])
    assert not step(store, kept, program, clock=now, stopping=never), "nothing is asked for"
    kept.promote(one.name, by="oleg", why="", anyway=False, now=1.7e9)
    assert step(store, kept, program, clock=now, stopping=never)
    assert kept.one(one.name).state == "promoted"
    judge, promote = called(tmp_path)
    assert ["--bundle", str(one.folder / BUNDLE), "--preview"] == judge[6:9]
    assert judge[judge.index("--by") + 1] == "olga"
    assert promote[promote.index("--by") + 1] == "oleg"
    assert "7" in promote
    assert "--anyway" not in promote
    with pytest.raises(NoProposal, match="promoted already"):
        kept.promote(one.name, by="oleg", why="", anyway=False, now=1.7e9)


def test_one_that_is_not_better_takes_a_reason(store: Store, tmp_path: Path) -> None:
    kept, program = proposed(tmp_path), desk(tmp_path, {**BETTER, "better": False})
    step(store, kept, program, clock=now, stopping=never)
    (one,) = kept.each()
    assert one.state == "not better"
    for why, anyway in (("", True), ("because", False)):
        with pytest.raises(NoProposal, match="not better beyond chance"):
            kept.promote(one.name, by="olga", why=why, anyway=anyway, now=1.7e9)
    kept.promote(one.name, by="olga", why="because", anyway=True, now=1.7e9)
    step(store, kept, desk(tmp_path, {}, 1, "it fell over"), clock=now, stopping=never)
    one = kept.one(one.name)
    assert one.state == "failed"
    assert one.done is not None
    assert one.done.error == "it fell over"
    assert "--anyway" in called(tmp_path)[-1]


UNDECIDED = {**BETTER, "better": False, "outlook": "Not enough evidence yet: a week more."}


def test_what_nobody_can_tell_yet_is_judged_again_each_week(store: Store, tmp_path: Path) -> None:
    kept, program = proposed(tmp_path), desk(tmp_path, UNDECIDED)
    clock = [1.7e9]
    assert step(store, kept, program, clock=lambda: clock[0], stopping=never)
    for look in range(1, LOOKS):
        (one,) = kept.each()
        assert one.state == "not yet"
        assert one.judged is not None
        assert (one.judged.looks, one.judged.outlook) == (look, UNDECIDED["outlook"])
        clock[0] += WEEK_S - 1
        assert not step(store, kept, program, clock=lambda: clock[0], stopping=never)
        clock[0] += 1
        if look == 2:  # one that fails counts, and takes nothing from what is known
            broken = desk(tmp_path, [], 2, "Error: no registry")
            assert step(store, kept, broken, clock=lambda: clock[0], stopping=never)
            desk(tmp_path, UNDECIDED)
        else:
            assert step(store, kept, program, clock=lambda: clock[0], stopping=never)
    (one,) = kept.each()
    assert one.state == "not better", "it was looked at often enough"
    clock[0] += WEEK_S
    assert not step(store, kept, program, clock=lambda: clock[0], stopping=never)
    assert len(called(tmp_path)) == LOOKS


def test_what_is_better_by_the_next_week_can_be_promoted(store: Store, tmp_path: Path) -> None:
    kept = proposed(tmp_path)
    step(store, kept, desk(tmp_path, UNDECIDED), clock=now, stopping=never)
    step(store, kept, desk(tmp_path, BETTER), clock=lambda: now() + WEEK_S, stopping=never)
    (one,) = kept.each()
    assert one.state == "better"
    kept.promote(one.name, by="olga", why="", anyway=False, now=now() + WEEK_S)
    assert kept.one(one.name).state == "promoting"


def test_one_that_is_promoted_anyway_is_judged_no_more(store: Store, tmp_path: Path) -> None:
    kept, program = proposed(tmp_path), desk(tmp_path, UNDECIDED)
    step(store, kept, program, clock=now, stopping=never)
    (one,) = kept.each()
    kept.promote(one.name, by="olga", why="because", anyway=True, now=1.7e9)
    assert step(store, kept, program, clock=lambda: now() + WEEK_S, stopping=never)
    assert "--preview" not in called(tmp_path)[-1]
    assert kept.one(one.name).state == "promoted"
    assert not step(store, kept, program, clock=lambda: now() + 9 * WEEK_S, stopping=never)


def test_what_cannot_be_judged_says_why(store: Store, tmp_path: Path) -> None:
    kept = proposed(tmp_path)
    step(store, kept, desk(tmp_path, [], 2, "Error: no registry"), clock=now, stopping=never)
    (one,) = kept.each()
    assert one.state == "unjudged"
    assert one.judged is not None
    assert one.judged.error == "Error: no registry"


def test_a_stop_breaks_it_off_and_it_is_run_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "POLL_S", 0.01)
    kept = proposed(tmp_path)
    waits = desk(tmp_path, BETTER)
    program = Path(waits.program[0])
    text = program.read_text().replace(
        "import json, sys\n", "import json, sys, time\ntime.sleep(60)\n"
    )
    program.write_text(text)
    assert not step(store, kept, waits, clock=now, stopping=lambda _: True)
    assert kept.each()[0].state == "judging"
    assert step(store, kept, desk(tmp_path, BETTER), clock=now, stopping=never)
    assert kept.each()[0].state == "better"


def test_the_former_champion_comes_back(store: Store, tmp_path: Path) -> None:
    kept = Proposals(tmp_path)
    with pytest.raises(NoProposal, match="Say why"):
        kept.go_back(by="olga", why=" ", now=1.7e9)
    kept.go_back(by="olga", why="worse", now=1.7e9)
    with pytest.raises(NoProposal, match="already"):
        kept.go_back(by="olga", why="worse", now=1.7e9 + 5)
    assert step(store, kept, desk(tmp_path, BETTER), clock=now, stopping=never)
    (one,) = kept.each()
    assert (one.back, one.state) == (True, "promoted")
    preview, promote = called(tmp_path)
    assert preview[-2:] == ["--back", "--preview"]
    assert promote[-2:] == ["--back", "7"]


def test_going_back_is_to_the_same_version_where_it_is_run_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former champion is another one once it has been gone back to."""
    monkeypatch.setattr(judging, "POLL_S", 0.01)
    kept = Proposals(tmp_path)
    kept.go_back(by="olga", why="worse", now=1.7e9)
    hangs = desk(tmp_path, BETTER)
    program = Path(hangs.program[0])
    program.write_text(
        program.read_text().replace(
            "print(", "'--yes' in sys.argv and __import__('time').sleep(60)\nprint(", 1
        )
    )

    def once_promoting(_: float) -> bool:
        return (tmp_path / "called").exists() and "--yes" in called(tmp_path)[-1]

    assert not step(store, kept, hangs, clock=now, stopping=once_promoting)
    assert kept.each()[0].state == "promoting"
    other = desk(tmp_path, {**BETTER, "version": "8"})
    assert step(store, kept, other, clock=now, stopping=never)
    assert kept.each()[0].state == "promoted"
    assert [one[-2:] for one in called(tmp_path)] == [
        ["--back", "--preview"], ["--back", "7"], ["--back", "7"],
    ]  # fmt: skip


def test_names_are_ours_and_the_same_is_proposed_once(tmp_path: Path) -> None:
    kept = proposed(tmp_path)
    for name in ("../../etc", "1-0000000g", "", "1-00000000"):
        with pytest.raises(NoProposal, match="no such proposal"):
            kept.one(name)
    with pytest.raises(NoProposal, match="proposed already"):
        kept.propose(small_bundle(), "", [], by="olga", why="again", now=1.7e9)
    with pytest.raises(NoProposal, match="Say why"):
        kept.propose(small_bundle(), "", [], by="olga", why="", now=1.7e9)


def test_while_the_service_runs_what_is_asked_for_is_judged_and_weeks_are_logged(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proposal at each turn, weeks at the first of many; nothing while no parameters are there,
    which may come later."""
    kept, program = proposed(tmp_path), desk(tmp_path, BETTER)
    tracked: list[Path] = []
    monkeypatch.setattr(judging, "track", lambda folder, *_: tracked.append(folder))
    few, turns = iter([False, True, False, True]), iter([False, False, False, True])
    url = store.engine.url.render_as_string(hide_password=False)
    keep_judging(url, tmp_path, program, lambda _: next(few))
    unreadable = replace(program, params=tmp_path / ("n" * 300))
    keep_judging(url, tmp_path, unreadable, lambda _: next(few))
    assert (kept.each()[0].state, tracked) == ("judging", [])
    program.params.touch()
    # a wait of none is asked for while the judging program runs, however long that is
    keep_judging(url, tmp_path, program, lambda wait_s: wait_s > 0 and next(turns))
    assert kept.each()[0].state == "better"
    assert tracked == [tmp_path]


def test_few_jobs_of_ours_are_not_judged_on(store: Store, tmp_path: Path) -> None:
    (one,) = proposed(tmp_path).each()
    found = judged_on(store, one, desk(tmp_path, BETTER))
    assert found == tmp_path / "data/trace"
    assert not (one.folder / JOBS).exists()


@pytest.mark.parametrize("why", ["a\0test", "two\nlines", "half \ud800"])
def test_a_reason_is_one_line_of_text(why: str, store: Store, tmp_path: Path) -> None:
    kept = proposed(tmp_path)
    step(store, kept, desk(tmp_path, BETTER), clock=now, stopping=never)
    (one,) = kept.each()
    for ask in (
        lambda: kept.propose(small_bundle(), "", [], by="olga", why=why, now=1.7e9),
        lambda: kept.go_back(by="olga", why=why, now=1.7e9),
        lambda: kept.promote(one.name, by="olga", why=why, anyway=True, now=1.7e9),
    ):
        with pytest.raises(NoProposal, match="one line of text"):
            ask()


def test_a_reason_that_no_program_takes_ends_its_proposal_only(
    store: Store, tmp_path: Path
) -> None:
    kept = proposed(tmp_path)
    (one,) = kept.each()
    write(one.folder / PROPOSED, replace(one.proposed, why="a\0test"))
    assert step(store, kept, desk(tmp_path, BETTER), clock=now, stopping=never)
    assert kept.one(one.name).state == "unjudged"
    write(one.folder / JUDGED, Judged(at=1.7e9, version="7", better=True))
    write(one.folder / WANTED, Wanted(at=1.7e9, by="olga", why="a\0test"))
    assert step(store, kept, desk(tmp_path, BETTER), clock=now, stopping=never)
    assert kept.one(one.name).state == "failed"


def test_a_missing_program_ends_its_proposal_only(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, program = proposed(tmp_path), desk(tmp_path, BETTER)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert step(store, kept, program, clock=now, stopping=never)
    (one,) = kept.each()
    assert one.judged is not None
    assert "nice" in one.judged.error


def test_one_that_cannot_be_read_is_left_out(store: Store, tmp_path: Path) -> None:
    kept = proposed(tmp_path)
    (whole,) = kept.each()
    damaged = kept.folder / "1700000000-0123abcd-4567cdef"
    damaged.mkdir()
    for text in ("", "{", "[]", '{"at": 1.0}'):
        (damaged / PROPOSED).write_text(text)
        assert [one.name for one in kept.each()] == [whole.name]
        with pytest.raises(NoProposal):
            kept.one(damaged.name)
    assert step(store, kept, desk(tmp_path, BETTER), clock=now, stopping=never)


def test_a_window_that_is_no_date_ends_its_proposal_only(store: Store, tmp_path: Path) -> None:
    kept = Proposals(tmp_path)
    dated = {"duration": {"window_to": "last week"}}
    bundle = Bundle(duration=small_bundle().duration, metadata=dated)
    kept.propose(bundle, "", [], by="olga", why="a test", now=1.7e9)
    assert step(store, kept, desk(tmp_path, BETTER), clock=now, stopping=never)
    (one,) = kept.each()
    assert one.judged is not None
    assert "last week" in one.judged.error


def test_a_full_disk_leaves_it_for_later(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, program = proposed(tmp_path), desk(tmp_path, BETTER)

    def full(path: Path, what: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(judging, "write", full)
        assert not step(store, kept, program, clock=now, stopping=never)
    assert step(store, kept, program, clock=now, stopping=never)
    assert kept.each()[0].state == "better"


def test_one_with_many_after_it_is_judged_first(store: Store, tmp_path: Path) -> None:
    kept = proposed(tmp_path)
    (first,) = kept.each()
    for i in range(25):
        later = kept.folder / f"{1_700_000_001 + i}-{'a' * 8}"
        write(later / PROPOSED, replace(first.proposed, digest=f"{i:064}"))
    assert len(kept.each()) == 26
    assert step(store, kept, desk(tmp_path, BETTER), clock=now, stopping=never)
    assert kept.one(first.name).state == "better"
    with pytest.raises(NoProposal, match="proposed already"):
        kept.propose(small_bundle(), "", [], by="olga", why="again", now=1.7e9 + 99)


def test_what_could_not_be_judged_is_proposed_again(store: Store, tmp_path: Path) -> None:
    kept = proposed(tmp_path)
    step(store, kept, desk(tmp_path, [], 2, "Error: no registry"), clock=now, stopping=never)
    (first,) = kept.each()
    again = kept.propose(small_bundle(), "", [], by="olga", why="again", now=1.7e9)
    assert again.name != first.name, "though within the same second"
    assert (kept.one(first.name).state, again.state) == ("unjudged", "judging")
    assert step(store, kept, desk(tmp_path, BETTER), clock=now, stopping=never)
    assert kept.one(again.name).state == "better"
    with pytest.raises(NoProposal, match="proposed already"):
        kept.propose(small_bundle(), "", [], by="olga", why="again", now=1.7e9 + 9)


def test_going_back_is_never_seen_half_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, seen = Proposals(tmp_path), list[str]()

    def looked(path: Path, what: Proposed | Wanted) -> None:
        write(path, what)
        seen.extend(one.state for one in kept.each())

    monkeypatch.setattr(proposals, "write", looked)
    kept.go_back(by="olga", why="worse", now=1.7e9)
    assert seen == ["promoting"]


def test_what_could_not_be_judged_is_promoted_by_nobody(store: Store, tmp_path: Path) -> None:
    kept = proposed(tmp_path)
    step(store, kept, desk(tmp_path, [], 2, "Error: no registry"), clock=now, stopping=never)
    (one,) = kept.each()
    with pytest.raises(NoProposal, match="has not been judged"):
        kept.promote(one.name, by="olga", why="because", anyway=True, now=1.7e9)


def test_it_is_promoted_on_the_jobs_that_it_was_judged_on(store: Store, tmp_path: Path) -> None:
    kept, program = proposed(tmp_path), desk(tmp_path, BETTER)
    step(store, kept, program, clock=now, stopping=never)
    (one,) = kept.each()
    (one.folder / JOBS).write_bytes(b"")
    kept.promote(one.name, by="olga", why="", anyway=False, now=1.7e9)
    step(store, kept, program, clock=now, stopping=never)
    promote = called(tmp_path)[-1]
    assert promote[promote.index("--trace") + 1] == str(one.folder / JOBS)


@pytest.mark.parametrize(
    ("since_s", "jobs", "users", "ours"),
    [(1, LEAST_JOBS, LEAST_USERS, True), (0, LEAST_JOBS, LEAST_USERS, False),
     (1, LEAST_JOBS - 1, LEAST_USERS, False), (1, LEAST_JOBS, LEAST_USERS - 1, False)],
)  # fmt: skip
def test_only_jobs_that_came_since_it_learned_are_judged_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    since_s: int, jobs: int, users: int, ours: bool,
) -> None:  # fmt: skip
    (one,) = proposed(tmp_path).each()
    about = {"duration": {"window_to": "2026-03-01T00:00:00+00:00"}}
    monkeypatch.setattr(judging.Bundle, "load", lambda _: SimpleNamespace(metadata=about))
    came = 1_772_323_200 + since_s
    moments = pa.array([came * 1000] * jobs, pa.timestamp("ms"))
    table = pa.table({"submit_time": moments, "user": [f"u{i % users}" for i in range(jobs)]})
    monkeypatch.setattr(judging, "finished", lambda _: table)
    found = judged_on(store, one, desk(tmp_path, BETTER))
    assert (found == one.folder / JOBS) == ours
    assert found.exists() == ours


def test_each_week_that_is_over_is_logged_once_and_tried_again_an_hour_after_it_failed(
    tmp_path: Path,
) -> None:
    failing = desk(tmp_path, {}, 1, "no registry")
    assert not track(tmp_path, failing, 1.0e9, never), "no week is over"
    folder = tmp_path / served.FOLDER
    folder.mkdir()
    for number, whole in ((2900, True), (2901, False)):
        week = served.Week(number=number, whole=whole)
        (folder / f"{number}.json").write_text(json.dumps(encode(week)))
    assert not track(tmp_path, failing, 1.0e9, never)
    program = desk(tmp_path, {})
    assert not track(tmp_path, program, 1.0e9 + AGAIN_S - 1, never), "not before an hour has passed"
    assert track(tmp_path, program, 1.0e9 + AGAIN_S, never)
    assert not track(tmp_path, program, 2.0e9, never), "it is logged"
    assert len(called(tmp_path)) == 2
    asked = called(tmp_path)[-1]
    assert asked[0] == "served"
    assert asked[asked.index("--state-dir") + 1] == str(tmp_path)
    assert "--log" in asked
    assert [week.number for week in served.weeks(tmp_path)] == [2901, 2900]
