"""The judge of generated sites sees a lie in an answer, each by its rule; and sites are seeded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.slurm import claimed
from benchmarks.slurm.generated import generate
from benchmarks.slurm.judge import (
    Facts,
    Promise,
    estimated,
    faults,
    hosts,
    offers,
    promised,
    records,
    tasks_of,
    terms_of,
    unlike,
)
from benchmarks.slurm.kept import MARK, PAST, Kept, marked, refused, refused_second
from benchmarks.slurm.looks import arrivals_known, ran
from benchmarks.slurm.shrink import fewest
from features.job import Job
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.estimates import LiveEstimator
from scheduler.explain.whatif.futures import Arrival, Beliefs
from scheduler.explain.whatif.memory import Memory
from scheduler.slurm.twin.policy import Slurm
from scheduler.slurm.twin.site import Ask
from scheduler.slurm.twin.twin import twin_in
from tests.waiting import PATIENCE_S, until

NOW = 1_800_000_000.0
JOBS = (
    "JobId=7 JobName=a b UserId=nobody(65534) JobState=PENDING Reason=Resources Partition=main "
    "TimeLimit=00:10:00 ExcNodeList=n3 Reservation=\n"
    "JobId=8 ArrayJobId=8 ArrayTaskId=1-2,5%2 JobState=PENDING Reason=Priority Partition=zzhidden"
)
NODES = "\n".join(
    f"NodeName={name} State={state}"
    for name, state in (("n1", "IDLE"), ("n2", "DOWN*"), ("n3", "MIXED"), ("n4", "MIXED"))
)
RESERVED = (
    f"ReservationName=maintenance StartTime={NOW + 60:.0f} EndTime={NOW + 120:.0f} Nodes=n[4-5]\n"
    f"ReservationName=far StartTime={NOW + 9000:.0f} EndTime={NOW + 9900:.0f} Nodes=n[1-2]"
)
TRUE: dict[str, Any] = {
    "job_id": "7",
    "forecast": {"start_p50": NOW + 30, "start_p90": NOW + 90},
    "slurm": {"code": "Resources", "needed": {"would_do": {"first": ["n1"]}, "closed": []}},
}


def facts(can: Mapping[str, bool | None] | None = None) -> Facts:
    def ever(_: str, node: str) -> bool | None:
        return (can or {"n1": True, "n3": True, "n4": True}).get(node, False)

    def asked(_: str, name: str, value: str) -> str:
        return "Invalid qos" if (name, value) == ("qos", "theirs") else ""

    return Facts(
        NOW,
        records(JOBS, "JobId"),
        records(NODES, "NodeName"),
        records(RESERVED, "ReservationName"),
        frozenset(("zzhidden",)),
        ever,
        asked,
    )


def lie(**slurm: Any) -> dict[str, Any]:
    return TRUE | {"slurm": TRUE["slurm"] | slurm}


def would_do(node: str) -> dict[str, Any]:
    return lie(needed={"would_do": {"first": [node]}})


def test_the_truth_breaks_no_rule() -> None:
    assert faults(TRUE, facts()) == []
    held = {"name": "maintenance", "nodes": {"first": ["n4", "n5"]}}
    assert faults(lie(reservation=held), facts()) == []
    assert faults(TRUE | {"job_id": "8_5", "text": "in zzhidden"}, facts()) == []


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (would_do("n2"), "node: n2 would do, and is DOWN*"),
        (would_do("n3"), "node: n3 would do, and is excluded"),
        (would_do("n4"), "node: n4 would do, and is reserved"),
        (would_do("n9"), "node: n9 would do, and is None"),
        (lie(needed={"closed": [{"name": "n1", "state": "DOWN"}]}), "node: n1 is said to be DOWN"),
        (lie(reservation={"name": "gone"}), "reservation: there is no gone"),
        (lie(reservation={"name": "far"}), "reservation: far begins after"),
        (TRUE | {"forecast": {"start_p50": NOW - 61}}, "time: start_p50 is 61 s past"),
        (lie(plan={"at": NOW - 5}), "time: the plan is 5 s past"),
        (lie(begins=NOW - 5), "time: begin is 5 s past"),
        (TRUE | {"detail": "jobs of partition zzhidden go first"}, "hidden: zzhidden"),
        (lie(left_out="it cannot be planned"), "no answer: it cannot be planned"),
    ],
)
def test_a_lie_breaks_its_rule(answer: dict[str, Any], rule: str) -> None:
    (found,) = faults(answer, facts())
    assert found.startswith(rule)


def test_a_node_or_reservation_that_slurm_says_cannot_do_breaks_its_rule() -> None:
    cannot = facts({"n1": False})
    assert faults(TRUE, cannot) == ["node: n1 would do, and cannot"]
    named = lie(reservation={"name": "maintenance"}, needed=None)
    assert faults(named, cannot) == ["reservation: maintenance has no node that would do"]


def test_terms_that_sprio_has_otherwise_are_faults() -> None:
    row = "295|0|69|0|0|4250|5000|0|10|cpu=25,mem=0,gres/gpu=375"
    known = terms_of(f"{row}\n296|{row[4:]}\n296|{row[4:]}\nno row")
    assert known.keys() == {"295"}  # the other is in two partitions
    true = {"age": 69, "job size": 4250, "partition": 5000, "nice": -10, "TRES": 402}

    def answer(**changed: float) -> dict[str, Any]:
        parts = {**true, **changed}
        return lie(terms=[{"name": name, "points": points} for name, points in parts.items()])

    assert unlike(answer(), known["295"]) == []
    assert unlike(answer(age=72), known["295"]) == ["terms: age 72, sprio 69"]
    assert unlike(answer(TRES=396), known["295"]) == ["terms: TRES 396, sprio 400"]
    assert unlike(answer(luck=1), known["295"]) == ["terms: luck"]


def test_offers_that_are_refused_or_no_sooner_are_faults() -> None:
    update = "scontrol update jobid=7"
    good = {"command": f"{update} qos=high", "start_p90": NOW + 50}
    answer = {"as_it_is": {"start_p90": NOW + 90}, "tried": [good]}
    assert offers("7", answer, facts()) == []
    for bad in (
        good | {"command": f"{update} qos=theirs"},
        good | {"start_p90": NOW + 90},
        good | {"command": "scancel 7"},
        good | {"words": "in partition zzhidden"},
    ):
        assert len(offers("7", answer | {"tried": [good, bad]}, facts())) == 1, bad


def test_partitions_that_eta_takes_and_slurm_does_not_are_faults() -> None:
    answer = {"tried": [{"partition": "main"}], "closed": [{"partition": "long", "why": "is down"}]}
    assert estimated([], answer, {"main": "", "long": "down"}) == []
    assert len(estimated([], answer, {"main": "not available", "long": ""})) == 2


def test_what_scontrol_prints_is_read() -> None:
    assert hosts("n[1-2,05],a,b7") == {"n1", "n2", "n05", "a", "b7"}
    jobs = records(JOBS, "JobId")
    assert jobs["7"]["JobName"] == "a b"
    assert tasks_of(jobs["8"]) == ["8_1", "8_2", "8_5"]
    assert tasks_of({"JobId": "4", "HetJobId": "3", "HetJobOffset": "1"}) == ["3+1"]
    assert records("No reservations in the system", "ReservationName") == {}


def test_the_judge_imports_nothing_of_what_it_judges() -> None:
    import benchmarks.slurm.judge

    source = Path(benchmarks.slurm.judge.__file__).read_text()
    assert "scheduler" not in source


def test_a_seed_is_a_site_and_what_ran_before_differs_from_what_is_submitted() -> None:
    one, again, other = generate(5), generate(5), generate(6)
    lines = [site.own.lines(range(site.own.nodes)) for site in (one, again, other)]
    assert lines[0] == lines[1] != lines[2]
    assert one.orders == again.orders != other.orders
    assert (one.accounting, one.settings) == (again.accounting, again.settings)
    assert one.past == again.past
    assert len(one.past) == 2 * len(one.orders)
    assert {done.user for done in one.past} == {order.user for order in one.orders}
    assert one.past[:40] != one.orders[:40]


def test_a_command_that_is_told_to_end_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    own_s = 98_000_000 + os.getpid()  # no other run of this test on the host asks for it
    script = "import os, subprocess, time; "
    script += f"subprocess.Popen(['sleep', '{own_s}'], start_new_session=1)"
    script += "; open(os.environ['TMPDIR'] + '/kept', 'w'); print(os.environ['TMPDIR'], flush=True)"
    words = [sys.executable, "-m", "benchmarks.slurm.alone", sys.executable, "-c"]
    running = subprocess.Popen(
        [*words, script + f"; time.sleep({own_s})"], stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    folder = Path(running.stdout.readline().strip())
    assert (folder / "kept").exists()
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert not folder.exists()
    until(
        lambda: subprocess.run(["pgrep", "-f", f"sleep.?{own_s}"], check=False).returncode,
        "the end",
    )


def test_first_forecasts_are_scored_by_horizon_and_open_ones_left_out() -> None:
    def made(wait: float, started: float | None, p90: float = 30.0, until: float = 50.0) -> Promise:
        start = None if started is None else NOW + started
        return Promise(NOW, NOW + wait, NOW + p90, start, NOW + until)

    crude = Promise(NOW, NOW + 5, None, NOW, NOW + 50)
    far = made(70, None, 90.0)
    near = made(5, 4), made(5, 40), made(5, None), made(20, 29), made(20, None, 60.0)
    found = promised([*near, made(35, 2, 45.0), crude, far])
    assert found["to 10 min"] == {
        "jobs": 3, "open": 0, "by_p90": 1 / 3, "of": 3, "by_p50": 1 / 3, "within_10_min": 1 / 3,
        "width_min": 25.0,
    }  # fmt: skip
    # of its p90 one is open, of its p50 none
    assert found["to 1 h"] == {
        "jobs": 2, "open": 1, "by_p90": 1, "of": 3, "by_p50": 1 / 3, "within_10_min": 1 / 3,
        "width_min": 10.0,
    }  # fmt: skip
    assert found["to 6 h"] == {"jobs": 0, "open": 1, "of": 0, "width_min": 20.0}
    assert found["crude"] == {"jobs": 1}
    assert set(found) == {"to 10 min", "to 1 h", "to 6 h", "crude"}


@pytest.mark.parametrize("needed", [{7}, {0, 59}, {3, 4, 31}, set(range(0, 60, 9))])
def test_a_failing_site_shrinks_to_what_it_takes_to_fail(needed: set[int]) -> None:
    tried: list[int] = []

    def fails(places: Sequence[int]) -> bool:
        tried.append(len(places))
        return needed <= set(places)

    assert fewest(range(60), fails) == sorted(needed)
    assert len(tried) < 60 * len(needed)
    with pytest.raises(ValueError, match="no such fault"):
        fewest(range(60), lambda _: False)


SACCT = "JobID|User|Partition|Submit|Eligible|Start|End|Timelimit|State|NNodes|AllocTRES"
BEGAN = 1_800_000_000


def kept(starts: Sequence[int], first_id: int = 1) -> Kept:
    """A site with one GPU, to which jobs of a minute came at once; and one of its past."""

    def row(job_id: int, start: int) -> str:
        at, began, ended = (
            datetime.fromtimestamp(BEGAN + s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            for s in (0, start, start + 60)
        )
        return f"{job_id}|ada|gpu|{at}|{at}|{began}|{ended}|00:02:00|COMPLETED|1|gres/gpu=1"

    lines = [row(first_id + n, start) for n, start in enumerate(starts)]
    node = "NodeName=n1 State=IDLE CPUTot=8 RealMemory=64000 Gres=gpu:a100:1\n   Partitions=gpu\n"
    ids = {place: str(first_id + place) for place in range(len(starts))}
    sacct = "\n".join([SACCT, row(PAST + 1, 0), *lines])
    return Kept(7, ids=ids, sacct=sacct, site=node)


def test_a_site_s_own_sacct_is_believed_where_it_was_scheduled_as_slurm_does() -> None:
    in_turn = [60 * n for n in range(10)]
    assert refused(kept(in_turn)) == []
    assert "rank correlation" in " ".join(refused(kept([*reversed(in_turn)])))
    assert "on average" in " ".join(refused(kept([3 * start for start in in_turn])))


def test_a_second_run_is_held_against_the_first_by_who_was_submitted_when() -> None:
    in_turn = [60 * n for n in range(10)]
    assert refused_second(kept(in_turn), kept(in_turn, first_id=41)) == []
    assert refused_second(kept(in_turn), kept([*reversed(in_turn)], first_id=41))
    assert refused_second(kept(in_turn), kept([3 * start for start in in_turn], first_id=41))


def test_what_a_replay_states_of_a_setting_is_held_against_a_run_with_it() -> None:
    in_turn = [60 * n for n in range(10)]
    alike = claimed.compared(kept(in_turn), kept(in_turn, first_id=41), "no backfill")
    assert (alike["jobs"], alike["recorded_s"], alike["saved_s"]) == (10, 270.0, [0.0])
    assert alike["stated"]["low_s"] < 0.0 < alike["stated"]["high_s"]
    assert claimed.missed([alike]) == []
    slow = kept([3 * start for start in in_turn], first_id=41)
    unlike = claimed.compared(kept(in_turn), slow, "no backfill")
    assert unlike["saved_s"] == [-540.0]
    assert claimed.missed([unlike]) == [
        "intervals that hold the daemons' difference: 0.00, not 0.85"
    ]


def test_of_a_site_that_the_replay_gets_wrong_nothing_is_stated() -> None:
    wrong = kept([9 * 60 * n for n in range(10)])
    row = claimed.compared(wrong, wrong, "no backfill")
    assert row["stated"] is None
    assert row["refused"]
    assert claimed.missed([row]) == ["sites of which something is stated: 0.00, not 0.6"]


@pytest.mark.parametrize(
    ("name", "holds", "lacks"),
    [
        ("", "bf_interval=2,", "sched/builtin"),
        ("no backfill", "SchedulerType=sched/builtin", "bf_max_job_test"),
        ("rare backfill", ",bf_interval=60", "bf_interval=2,"),
    ],
)
def test_the_second_run_has_the_setting(name: str, holds: str, lacks: str) -> None:
    made = generate(3)
    changed = claimed.changed(made.own, claimed.SETTINGS.get(name, {}))
    text = "\n".join(changed.lines(range(made.own.nodes)))
    assert holds in text
    assert lacks not in text


def test_how_long_a_job_ran_is_known_once_it_began() -> None:
    began = {"StartTime": "100", "EndTime": "160"}
    rows = {
        "1": {"JobState": "COMPLETED", **began},
        "2": {"JobState": "RUNNING", "StartTime": "100", "EndTime": "900"},  # by its limit
        "3": {"JobState": "PENDING", "StartTime": "400", "EndTime": "900"},
        "4": {"JobState": "CANCELLED", **began},
    }
    assert ran(Kept(7, jobs=rows, at=200.0)) == {"1": 60.0, "2": pytest.approx(130.0)}


def test_where_arrivals_are_known_those_that_are_yet_to_come_do_and_no_others() -> None:
    core = Core(Cluster(ClusterSpec({"vc": 1}, 8)), Slurm())
    times = {"here": 50.0, "later": 160.0, "unended": 160.0, "elsewhere": 160.0}
    jobs = {
        name: (Job(name, at, 1, "u", "other" if name == "elsewhere" else "vc"), Ask(name, user="u"))
        for name, at in times.items()
    }
    truth = {"here": 9.0, "later": 30.0, "elsewhere": 9.0}
    memory = Memory(LiveEstimator(), asks=True)
    with arrivals_known(truth, jobs):
        made = Beliefs.of(memory, core, 100.0)
    assert made.pieces == [{"vc": [Arrival(60.0, jobs["later"][0], 30.0, None, 30.0)]}]
    twin = twin_in(core.policy)
    assert twin is not None
    assert twin.asked("later") == jobs["later"][1]
    assert twin.asked("here") is None
    assert Beliefs.of(memory, core, 100.0).pieces == []


def test_a_command_is_known_again_whatever_mark_its_table_has() -> None:
    once, again = (marked(["squeue", f"Name:|{one * 16}|", "-a"]) for one in "ab")
    assert once == (("squeue", f"Name:|{MARK}|", "-a"), "a" * 16)
    assert again[0] == once[0]
    assert marked(["sinfo"]) == (("sinfo",), "")
