"""A history that is right is passed; one that breaks a rule is found out, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker import check

Records = list[dict[str, Any]]


def a_call(op: str, job: str = "a", **more: Any) -> dict[str, Any]:
    said = {
        "what": "call", "at": 1.5, "began": 1.0, "who": "ann", "op": op, "job": job, "status": 202,
        "answer": {"job_id": job, "phase": "queued"},
    }  # fmt: skip
    return said | more


def a_line(seq: int, kind: str, job: str = "", cause: int = 0, **body: Any) -> dict[str, Any]:
    actor = (
        "ann"
        if kind in ("submitted", "cancel_asked", "held", "released", "changed", "priority_set")
        else ""
    )
    return {
        "what": "log", "seq": seq, "kind": kind, "job": job, "actor": actor, "cause": cause,
        "body": body,
    }  # fmt: skip


def right() -> Records:
    """One job that is submitted, started, runs and ends."""
    return [
        {
            "what": "begins", "at": 0.0, "lease_s": 3.0, "most_waiting": 2,
            "nodes": [{"node": 0, "vc": "left", "gpus": 4}, {"node": 1, "vc": "right", "gpus": 4}],
        },
        {"what": "started", "at": 0.1, "role": "decider", "process": "one"},
        {"what": "decides", "at": 1.0, "holder": "one", "term": 1},
        a_call("submit", status=201, key="k1"),
        {"what": "decides", "at": 2.0, "holder": "one", "term": 1},
        {"what": "began", "at": 2.1, "job": "a", "attempt": 1, "purpose": "run", "gpus": ["0"],
         "nodes": [0]},
        {"what": "ended", "at": 3.0, "job": "a", "attempt": 1, "reason": "exited"},
        {"what": "decides", "at": 4.0, "holder": "one", "term": 1},
        a_call("get", at=4.5, began=4.4, status=200, answer={"phase": "ended"}),
        {"what": "final", "at": 4.6, "job_id": "a", "owner": "ann", "vc": "left", "gpus": 1,
         "phase": "ended", "state": "completed", "share": False},
        a_line(1, "genesis"),
        a_line(2, "lease", term=1),
        a_line(3, "submitted", "a"),
        a_line(4, "decided", cause=3),
        a_line(5, "started", "a"),
        a_line(6, "ended", "a"),
        a_line(7, "decided", cause=6),
        {"what": "decision", "event": 4, "job": "a", "action": "start", "nodes": [0]},
    ]  # fmt: skip


def test_a_right_history_is_passed() -> None:
    assert check(right()) == []


@pytest.mark.parametrize(
    ("seq", "wrong"), [(4, []), (5, ["a began 2 times: [(1, 'run'), (1, 'run')]"])]
)
def test_only_what_no_backup_says_began_begins_again(seq: int, wrong: list[str]) -> None:
    """The job begins; its machine is replaced, with a log up to `seq`; the job begins again."""
    records = right()
    end = records.index(a(records, "ended"))
    records[end] |= {"at": 2.5, "reason": "lost"}
    records.insert(end + 1, {"what": "restored", "at": 2.6, "host": "one", "seq": seq})
    records[end + 2 : end + 2] = ran("a", 2.8, 3.0)
    for kind in ("started", "ended"):
        a(records, "log", kind=kind)["body"]["attempt"] = 1
    assert check(records) == wrong


def a(records: Records, what: str, **said: Any) -> dict[str, Any]:
    """The first record that says so."""
    return next(
        one
        for one in records
        if one["what"] == what and all(one.get(name) == value for name, value in said.items())
    )


def without(what: str, **said: Any) -> Any:
    return lambda h: h.remove(a(h, what, **said))


def with_(what: str, change: dict[str, Any], **said: Any) -> Any:
    return lambda h: a(h, what, **said).update(change)


def add(*records: dict[str, Any]) -> Any:
    return lambda h: h.extend(records)


def ran(job: str, at: float, end: float, **more: Any) -> list[dict[str, Any]]:
    began = {"what": "began", "at": at, "job": job, "attempt": 1, "purpose": "run", "gpus": ["0"],
             "nodes": [0]}  # fmt: skip
    ended = {"what": "ended", "at": end, "job": job, "attempt": 1, "reason": "exited"}
    return [began | more, ended]


STOPPED = {"what": "stops", "at": 1.2, "job": "a", "attempt": 1}
PUT_OFF = {"priority_before": 0, "priority_after": -1}
CANCELLED = a_line(3, "cancel_asked", "a")
LATER = {"what": "decides", "at": 30.0, "holder": "one", "term": 1}
AT_THE_END = a_call("list", "", at=60.0)

BROKEN = [
    ("not in the log", without("log", kind="submitted")),
    ("nowhere in the end", without("final")),
    ("running in the end", with_("final", {"phase": "running"})),
    ("began 2 times", add(*ran("a", 3.2, 3.5, attempt=2))),
    ("no pass decided so", with_("decision", {"nodes": [1]})),
    ("no pass decided so", with_("decision", {"action": "profile"})),
    ("a was accepted and is not in the log", add(a_call("cancel"))),
    ("a was accepted and is not in the log", add(a_call("cancel_many", answer={"asked": ["a"]}))),
    ("never ran", lambda h: [h.remove(a(h, "began")), h.remove(a(h, "ended"))]),
    ("said to be lost", with_("final", {"phase": "lost", "state": None})),
    ("said to be completed", with_("ended", {"reason": "request"})),
    ("reached its limit", with_("final", {"state": "timeout"})),
    ("said to be cancelled", with_("final", {"phase": "cancelled", "state": "cancelled"})),
    ("given to 3", add(*ran("b", 2.2, 3.0), *ran("c", 2.3, 3.0))),
    ("had company", add(*ran("b", 2.2, 3.0))),
    ("said to be ended at 2.5", add({"what": "over", "at": 2.5, "job": "a", "phase": "ended"})),
    ("attempt 1 of a runs on", lambda h: [
        h.append(STOPPED), a(h, "began").update(at=1.9),
    ]),
    ("attempt 1 of a runs on", lambda h: [h.append(STOPPED), a(h, "ended").update(at=4.5)]),
    ("ran 2.4 s, and may for 1 s", lambda h: [
        a(h, "ended").update(at=4.5), a(h, "final").update(time_limit_s=1.0),
    ]),
    ("before b ended, as it asked for", lambda h: [
        h.extend(ran("b", 1.8, 2.2)), a(h, "log", kind="submitted")["body"].update(after_any="b"),
    ]),
    ("wants 2 GPUs", with_("final", {"gpus": 2})),
    ("ran on node 1 of right", with_("began", {"nodes": [1]})),
    ("a later pass started it", add(CANCELLED)),
    ("after its cancellation was acknowledged", lambda h: [
        h.append(a_line(8, "cancel_asked", "a")), h.append(a_call("cancel", at=1.9)),
        h.remove(a(h, "decision")),
    ]),
    ("was never stopped", lambda h: [
        h.append(a_line(8, "cancel_asked", "a")), h.append(a_call("cancel", at=1.9)),
        h.remove(a(h, "ended")), h.remove(a(h, "final")),
    ]),
    ("was cancelled, and is running", lambda h: [
        h.append(a_call("cancel")), a(h, "final").update(phase="running"),
    ]),
    ("was held", add(a_line(3, "held", "a"))),
    ("was held", add(
        a_line(2, "held", "a", operator=True), a_line(3, "released", "a", operator=False)
    )),
    ("which was drained", add(a_line(3, "node_set", node=0, open=False))),
    ("before it was submitted", with_("log", {"cause": 2}, seq=4)),
    ("knew less", with_("log", {"cause": 2}, seq=7)),
    ("was answered with the jobs", add(a_call("submit", "b", status=201, key="k1"))),
    ("nobody was told of", add(a_line(8, "submitted", "b"))),
    ("release of a", add(a_call("release", answer={"needed": True}))),
    ("priority of a", add(a_call("priority", status=200, answer=PUT_OFF))),
    ("nobody was told of: ['b']", lambda h: [
        h.append(a_call("submit", "", key="k2", status=422)), h.append(a_line(8, "submitted", "b")),
    ]),
    ("was ended, and is lost later", with_("final", {"phase": "lost"})),
    ("3 jobs waiting where 2 may", add(*(a_line(3, "submitted", job) for job in "bc"))),
    ("decided 2 times after it lost", add(*(
        {"what": "decides", "at": 4.0 + i, "holder": who, "term": term}
        for i, (who, term) in enumerate([("two", 2), ("one", 1), ("two", 2), ("one", 1)])
    ))),
    ("term 1 after 2", add(a_line(8, "lease", term=2), a_line(9, "lease", term=1))),
    ("event 9 was written by one under term 1", add(*(
        {"what": "wrote", "seq": seq, "lease": lease, "holder": who, "term": term}
        for seq, lease, who, term in [
            (9, "decider", "one", 1), (8, "decider", "two", 2), (10, "analyst", "one", 1),
        ]
    ))),
    ("was taken by two 2.5 s after", add({
        "what": "took", "lease": "decider", "holder": "two", "term": 2, "for_s": 10.0,
        "silent_s": 2.5,
    })),
    ("one wrote under term 1 of 'decider'", add({
        "what": "unfenced", "lease": "decider", "holder": "one", "term": 1, "by": "two", "now": 2,
    })),
    ("nobody decided from 4.0 to 30.0", add(LATER, AT_THE_END)),
    ("nobody decided from 4.0 to 60.0", add(AT_THE_END)),
    ("nobody decided from 0.0 to 60.0", lambda h: [
        *(h.remove(a(h, "decides")) for _ in range(3)), h.append(AT_THE_END),
    ]),
]  # fmt: skip


FINE = {
    "a limit that is kept": with_("final", {"time_limit_s": 1.0}),
    "to begin after another": lambda h: [
        h.extend(ran("b", 1.8, 2.0)),
        h.append(a(h, "decision") | {"job": "b"}),
        a(h, "log", kind="submitted")["body"].update(after_any="b"),
    ],
    "what was stopped and ends": add(STOPPED | {"at": 2.5}),
    "what was stopped, by whom was stopped": lambda h: [
        h.extend(
            [
                STOPPED,
                {"what": "frozen", "at": 1.9, "role": "shim", "process": "shim a", "seconds": 9.0},
            ]
        ),
        a(h, "began").update(at=1.9),
    ],
    "what was stopped, on a machine that was replaced": lambda h: [
        h.extend([STOPPED, {"what": "restored", "at": 1.8, "host": "one", "seq": 3}]),
        a(h, "began").update(at=1.9),
    ],
    "what ended is over": add({"what": "over", "at": 3.5, "job": "a", "phase": "ended"}),
    "a hold that was released": add(a_line(2, "held", "a"), a_line(3, "released", "a")),
    "a node that was opened": add(
        a_line(2, "node_set", node=0, open=False), a_line(3, "node_set", node=0, open=True)
    ),
    "to cancel what is over": add(
        a_call("cancel", answer={"job_id": "a", "phase": "ended"}),
        a_call("cancel_many", answer={"asked": [], "over": ["a"]}),
    ),
    "a priority that was so already": add(
        a_line(8, "priority_set", "a", priority=-1),
        a_call("priority", status=200, answer=PUT_OFF),
        a_call("priority", status=200, answer={"priority_before": -1, "priority_after": -1}),
    ),
}


@pytest.mark.parametrize("fine", FINE.values(), ids=FINE)
def test_what_breaks_no_rule_is_passed(fine: Any) -> None:
    history = right()
    fine(history)
    assert check(history) == []


@pytest.mark.parametrize(("said", "broken"), BROKEN, ids=[said for said, _ in BROKEN])
def test_a_broken_rule_is_found(said: str, broken: Any) -> None:
    history = right()
    broken(history)
    assert any(said in line for line in check(history)), check(history)


def silence(*records: dict[str, Any], standing_by: str = "b/decider.2", **begins: Any) -> Records:
    """Nobody decides from 4 to 30 s, though another decider stands by."""
    history = right()
    history[0] |= begins
    by = {"what": "started", "at": 0.2, "role": "decider", "process": standing_by}
    return [*history, by, *records, LATER, a_call("list", "", at=31.0)]


def frozen(at: float, process: str, seconds: float, role: str = "decider") -> dict[str, Any]:
    return {"what": "frozen", "at": at, "role": role, "process": process, "seconds": seconds}


def is_found(history: Records) -> bool:
    return any("nobody decided" in line for line in check(history))


def test_who_was_frozen_or_killed_may_be_silent_for_the_lease() -> None:
    assert check(silence(frozen(4.0, "one", 20.0), standing_by="two")) == []
    assert is_found(silence(frozen(4.0, "one", 5.0), standing_by="two"))


@pytest.mark.parametrize(("seconds", "wrong"), [(5.0, True), (11.0, False)])
def test_who_was_killed_for_its_silence_may_be_silent_for_twice_as_long(
    seconds: float, wrong: bool
) -> None:
    twice = frozen(1.0, "a/d.1", seconds), frozen(4.0, "a/d.2", 90.0)
    assert is_found(silence(*twice, hangs_s=10.0, watchdog_s=99.0)) is wrong


@pytest.mark.parametrize("role", ["decider", "analyst"])
def test_who_hangs_with_its_supervisor_is_waited_for_until_the_watchdog(role: str) -> None:
    """It may hang in a transaction, and nobody is there to kill it."""
    hangs = frozen(3.5, f"a/{role}.1", 90.0, role), frozen(4.0, "a", 90.0, "supervisor")
    history = silence(*hangs, hangs_s=16.0, watchdog_s=24.0)
    assert check(history) == []
    a(history, "frozen", role="supervisor")["process"] = "b"
    assert is_found(history)
    history.remove(a(history, "started", process="b/decider.2"))
    assert check(history) == [], "it may be in a transaction as it begins"


def test_a_job_is_looked_at_again_only_where_its_gpus_were_changed() -> None:
    history = right()
    history += [
        record | {"purpose": "profile", "attempt": attempt}
        for attempt in (2, 3)
        for record in ran("a", 1.6, 1.7)
    ]
    history += [a_line(seq, "decided", cause=2) for seq in (2, 3)]
    history += [
        {"what": "decision", "event": event, "job": "a", "action": "profile", "nodes": [0]}
        for event in (2, 20)
    ]
    history.append(a_line(20, "decided", cause=19))
    assert any("began 3 times" in line for line in check(history))
    history.append(a_line(12, "changed", "a", gpus=1))
    assert not any("began 3 times" in line for line in check(history))


def ordered(**more: Any) -> dict[str, Any]:
    said = {"what": "update", "at": 60.0, "job": "1", "priority": 20, "mark": "pellucid: was=10",
            "was": 10, "there": ""}  # fmt: skip
    return said | more


def in_front() -> Records:
    """One job that waits in Slurm, was ordered, and is as it was."""
    return [
        {"what": "begins", "at": 0.0, "slurm": True},
        {"what": "batch", "at": 1.0, "job": "1", "priority": 10},
        {"what": "batch", "at": 1.0, "job": "2", "priority": 20},
        {"what": "ordered", "at": 60.0, "job": "1", "priority": 20},
        ordered(),
        {"what": "row", "at": 90.0, "job": "1", "phase": "queued"},
        {"what": "batch_is", "job": "1", "state": "PENDING", "priority": 10, "own": 10,
         "comment": "", "submitted": 1.0, "since": 1.0},
        a_line(2, "advised") | {"at": 100.0},
        a_line(3, "ordered", "1", priority=20) | {"at": 100.0},
    ]  # fmt: skip


IN_FRONT = [
    ("1 times more than is logged", without("log", kind="ordered")),
    ("before it was said", lambda h: h.append(h.pop(h.index(a(h, "ordered"))))),
    ("before it was said", add(ordered(), a_line(4, "ordered", "1", priority=20) | {"at": 100.0})),
    ("none had more than 20", with_("update", {"priority": 21})),
    (
        "to 1000, and none",
        lambda h: [
            a(h, "update").update(priority=1000),
            h.append({"what": "batch", "at": 70.0, "job": "3", "priority": 1000}),
        ],
    ),
    ("was held, and was given", add({"what": "batch_held", "job": "1", "at": 40.0})),
    ("the site's own", add({"what": "batch_said", "job": "1", "at": 40.0})),
    ("left behind", with_("batch_is", {"comment": "pellucid: GpusBusy"})),
    ("had priority 10, and has 20", with_("batch_is", {"priority": 20})),
    ("shown as None", with_("row", {"job": "3"})),
    ("none of Slurm's", with_("row", {"job": "3"})),
    ("shown as ended", with_("row", {"phase": "ended"})),
    ("before the last", with_("log", {"at": 99.0}, kind="ordered")),
]


def test_a_job_that_began_or_ended_as_somebody_asked_may_be_shown_as_it_was() -> None:
    history = in_front()
    a(history, "row")["phase"] = "ended"
    a(history, "batch_is")["since"] = 89.0
    assert check(history) == []


@pytest.mark.parametrize(("said", "broken"), IN_FRONT, ids=[said for said, _ in IN_FRONT])
def test_a_broken_rule_in_front_of_slurm_is_found(said: str, broken: Any) -> None:
    history = in_front()
    assert check(history) == []
    broken(history)
    assert any(said in line for line in check(history)), check(history)
