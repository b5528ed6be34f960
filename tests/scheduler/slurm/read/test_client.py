"""What the Slurm backend reads and writes, without a Slurm: parsers, order, commands."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.slurm.read import parse
from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError, quoted, unreachable, word
from scheduler.slurm.read.order import priorities
from scheduler.slurm.read.past import past

NODE = (
    "NodeName={name} CoresPerSocket=1 CPUTot=32 AvailableFeatures=(null) Gres={gres} "
    "NodeAddr=127.0.0.1 OS=Linux 6.1.0-1 #1 SMP Debian State={state} ThreadsPerCore=1 "
    "Partitions={partitions}  Reason=a disk State=IDLE Gres=gpu:99 [root@2026-01-01T00:00:00]"
)


def node(name: str, **said: str) -> str:
    return NODE.format(
        **{"name": name, "gres": "gpu:4", "state": "IDLE", "partitions": "main", **said}
    )


def an_entry(**said: Any) -> dict[str, Any]:
    entry = {
        "job_id": 7, "array_job_id": 0, "array_task_id": None, "array_task_string": "",
        "job_state": "PENDING", "user_name": "ada", "name": "x", "partition": "main",
        "submit_time": 100, "eligible_time": 0, "start_time": 0, "end_time": 0, "priority": 0,
        "node_count": 1, "cpus": 2, "memory_per_cpu": 100, "time_limit": 5,
        "admin_comment": "", "comment": "", "tres_per_node": "", "tres_per_job": "",
    }  # fmt: skip
    return entry | said


def told(**said: Any) -> list[parse.SlurmJob]:
    meta = {"Slurm": {"version": {"major": 22, "micro": 8, "minor": 5}}}
    return parse.jobs(json.dumps({"meta": meta, "jobs": [an_entry(**said)]}))


# --- squeue --json --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "gpus", "kind"),
    [
        ({"tres_per_job": "gres:gpu:2"}, 2, ""),
        ({"tres_per_node": "gres:gpu:a100:2", "node_count": 3}, 6, "a100"),
        ({"tres_per_node": "gres:gpu"}, 1, ""),
        ({"tres_per_task": "gres:gpu:1", "tasks": 4}, 4, ""),
        ({"tres_req_str": "cpu=4,mem=1G,gres/gpu=3,gres/gpu:v100=3"}, 3, "v100"),
    ],
)
def test_gpus_asked_for_are_found_however_they_were_asked_for(
    said: dict[str, Any], gpus: int, kind: str
) -> None:
    (job,) = told(**said)
    assert (job.gpus, job.gpu_type) == (gpus, kind)


def test_a_job_that_ended_while_it_waited_never_began() -> None:
    """As 22.05 says after `scancel`: it began when it ended, on no node."""
    over = {"job_state": "CANCELLED", "start_time": 150, "end_time": 150}
    (waited,), (ran,) = told(**over), told(**over, nodes="n1")
    assert (waited.start, waited.end, ran.start) == (None, 150.0, 150.0)


def test_gpus_held_are_told_by_node() -> None:
    details = ["gpu:2(IDX:2-3)", "gpu:a100:2(IDX:0-1)"]
    (job,) = told(job_state="RUNNING", nodes="n[1,3]", gres_detail=details)
    assert job.nodes == ("n1", "n3")
    assert job.held_gpus == ((2, 3), (0, 1))


def test_tasks_of_an_array_are_jobs() -> None:
    waiting = told(array_job_id=7, array_task_string="1-3,7%2")
    assert [job.id for job in waiting] == ["7_1", "7_2", "7_3", "7_7"]
    (running,) = told(job_id=9, array_job_id=7, array_task_id=4, job_state="RUNNING")
    assert running.id == "7_4"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(an_entry())), JSON))
def test_entries_are_read_or_refused(said: dict[str, Any]) -> None:
    try:
        found = told(**said)
    except parse.ParseError:
        return
    assert all(job.gpus >= 0 and job.id for job in found)


@given(st.text())
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(parse.ParseError):
        parse.jobs(text)


# --- nodes, hosts ---------------------------------------------------------------------------------


def test_a_node_is_read_and_its_reason_forges_nothing() -> None:
    (found,) = parse.nodes(node("n1", state="IDLE+DRAIN"))
    assert (found.gpus, found.partitions) == (4, ("main",))
    assert not found.open
    (odd,) = parse.nodes(node("n1", gres="gpu:99999999"))
    assert (odd.gpus, odd.open) == (0, False)
    assert "Gres" in odd.fault


@pytest.mark.parametrize(
    ("states", "is_open"),
    [
        (["DOWN*", "IDLE*", "MIXED+MAINTENANCE", "IDLE+RESERVED", "FAIL", "IDLE+DRAIN"], False),
        (["IDLE", "MIXED", "ALLOCATED", "MIXED+COMPLETING", "IDLE+CLOUD"], True),
    ],
)
def test_nothing_starts_on_a_node_that_is_not_well(states: list[str], is_open: bool) -> None:
    for state in states:
        assert parse.nodes(node("n1", state=state))[0].open is is_open, state


@given(st.text())
def test_nodes_are_read_or_refused(text: str) -> None:
    try:
        parse.nodes(text)
    except parse.ParseError:
        return


def test_host_lists_are_expanded_in_order() -> None:
    assert parse.hosts("n[1-3,07],m2,a[1-2]b[3-4]") == (
        "n1", "n2", "n3", "n07", "m2", "a1b3", "a1b4", "a2b3", "a2b4",
    )  # fmt: skip
    assert parse.hosts("(null)") == ()


@given(st.text(alphabet="n[]-,0123456789x", max_size=30))
def test_host_lists_are_read_or_refused(text: str) -> None:
    try:
        assert len(parse.hosts(text)) <= parse.MOST_HOSTS
    except parse.ParseError:
        return


# --- commands -------------------------------------------------------------------------------------


@given(st.text())
def test_no_text_leaves_its_quotes(text: str) -> None:
    found = quoted(text)
    assert found[0] == found[-1] == '"'
    assert not set(found[1:-1]) & set("\"'\\\n\r\0")


@pytest.mark.parametrize(
    ("printed", "down"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", True),
        ("scontrol: error: Invalid job id unable to contact slurm controller", False),
    ],
)
def test_who_is_not_reached_has_refused_nothing(printed: str, down: bool) -> None:
    assert unreachable(printed) is down


@given(st.text())
def test_a_word_is_one_word_or_refused(text: str) -> None:
    try:
        assert word(text).split() == [text]
    except SlurmError:
        return


# --- order ----------------------------------------------------------------------------------------


def test_priorities_are_dealt_among_those_that_have_them() -> None:
    assert priorities([("a", 5000), ("b", 4000), ("c", 3000)]) == {}
    assert priorities([("c", 3000), ("a", 5000), ("b", 4000)]) == {"c": 5000, "a": 4000, "b": 3000}
    assert priorities([("a", 5000), ("c", 3000), ("b", 4000)]) == {"c": 4000, "b": 3000}
    assert priorities([("b", 7), ("a", 7)]) == {"a": 6}
    assert priorities([("b", 1), ("a", 1)]) == {}, "nobody is lifted"
    assert priorities([("a", 1), ("b", 5000), ("c", 1)]) == {"a": 5000, "b": 1}


@given(st.lists(st.integers(1, 2**32 - 2), max_size=60))
def test_the_order_wanted_is_the_order_of_the_priorities(now: list[int]) -> None:
    order = [(str(i), priority) for i, priority in enumerate(now)]
    new = priorities(order)
    after = [new.get(job, priority) for job, priority in order]
    assert all(
        first > second or first == second == 1 for first, second in itertools.pairwise(after)
    )
    assert all(priority > 0 for priority in after)
    ranked = zip(after, sorted(now, reverse=True), strict=True)
    assert all(new <= old for new, old in ranked), "none is lifted above what one of them had"
    assert after[:1] == sorted(now)[-1:], "the first has the highest"
    assert all(new[job] != priority for job, priority in order if job in new)


def test_lines_that_submitted_jobs_are_read_and_forge_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, ...]] = []

    def read(self: Slurm, *command: str) -> str:
        asked.append(command)
        (mark,) = (w.partition("=")[2] for w in command if w.startswith("--delimiter="))
        rows = ("7", "sbatch a.sh"), ("31_2", "sbatch --wrap=a\n8|b\n9 c"), ("5+0", "")
        return "".join(f"{job_id}{mark}{line}\n" for job_id, line in rows)

    monkeypatch.setattr(Slurm, "read", read)
    assert Slurm().submit_lines(["7", "31_2", "5+0"]) == {
        "7": "sbatch a.sh", "31_2": "sbatch --wrap=a\n8|b\n9 c", "5+0": ""
    }  # fmt: skip
    assert asked[0][:6] == ("sacct", "-n", "-P", "-X", "-j", "7,31_2,5+0")

    def refuse(self: Slurm, *command: str) -> str:
        raise SlurmError("sacct: error: Invalid field requested: SubmitLine")

    monkeypatch.setattr(Slurm, "read", refuse)
    assert Slurm().submit_lines(["7"]) == {}


def test_a_name_forges_no_ended_job_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Slurm, *command: str) -> str:
        between = [w.partition("=")[2] for w in command if w.startswith("--delimiter=")] or ["|"]
        own = ["7", "eve", "gpu", "100", "110", "170", "COMPLETED", "5", "8", "gres/gpu=4", "x\n"]
        forged = ["8", "ada", "gpu", "100", "110", "9999", "COMPLETED", "5", "8", "gres/gpu=4", "y"]
        return f"{between[0].join(own)}{'|'.join(forged)}\n"

    monkeypatch.setattr(Slurm, "read", read)
    assert [(job.id, job.user, job.end) for job in past(Slurm(), "", 30)] == [("7", "eve", 170.0)]


@pytest.mark.parametrize(
    ("who", "user", "whose"),
    [
        (0, "ada", "--uid=ada --chdir=/ "),
        (0, "root", ""),
        (1, "daemon", ""),
        (1, "root", None),  # only root may ask for others
        (0, "", ""),
    ],
)
def test_sbatch_tries_options_for_who_may_be_asked_for(
    who: int, user: str, whose: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "sbatch"
    command.write_text('#!/bin/sh\necho "$@" >&2; exit 1\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("os.geteuid", lambda: who)
    printed = Slurm().tried(["--gpus=1"], user).strip()
    expected = "" if whose is None else f"--test-only {whose}--gpus=1 --wrap true"
    assert printed == expected


@pytest.mark.parametrize(
    ("end", "raised", "says"),
    [
        ("kill -PIPE $$", SlurmDown, "squeue was ended by SIGPIPE"),
        ("kill -KILL $$", SlurmError, "squeue was ended by SIGKILL"),
        ("exit 3", SlurmError, "exit code 3"),
    ],
)
def test_a_command_that_ends_without_a_word_is_named_with_how_it_ended(
    end: str,
    raised: type[Exception],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slurm had hung up on squeue, and "exit code -13" did not count as Slurm being down."""
    command = tmp_path / "squeue"
    command.write_text(f"#!/bin/sh\n{end}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(raised, match=says):
        Slurm()._run(["squeue"], 20.0)
