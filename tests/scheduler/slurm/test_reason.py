"""Slurm's reasons: from value to sentence, to the letter."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from features.codec import decode, encode
from scheduler.explain.shortage import CPU, GPU, Lack, NodeShort, Shortage, _least
from scheduler.slurm.reason import (
    ClosedNode,
    GoesFirst,
    GpusAsked,
    LicenceAsked,
    LimitReached,
    Needed,
    NodeNames,
    NodesAllowed,
    PlaceInLine,
    PlannedStart,
    PriorityTerm,
    ReservationHeld,
    SlurmReason,
    Stopped,
    TimeLimitTooLong,
    headline,
    whole,
)

NOW = 1_790_000_000.0
TRES = LimitReached("GrpTRES", "gres/gpu", "account bio", 4, 3, 2)
NEEDS = Needed("long", (GpusAsked("a100", 2), GpusAsked("", 1)), 8, 2, True, True)
_CLOSED = NodeShort("n2", shut="closed", why='drained ("disk swap")')
READY = Shortage("long", ready=(NodeShort("n1"),), readies=1, shut=(_CLOSED,), shuts=1)
SENTENCES = [
    (
        SlurmReason("QOSGrpGRES", limit=TRES),
        "account bio may have 4 gres/gpu at once (GrpTRES), has 3, and this job asks for 2 more.",
    ),
    (
        SlurmReason("QOSGrpGRES", limit=replace(TRES, asked=8, ever=False)),
        "account bio may have 4 gres/gpu at once (GrpTRES), and this job alone asks for 8: it can "
        "never start like this.",
    ),
    (
        SlurmReason("QOSMaxJobsPerUserLimit", limit=LimitReached("MaxJobsPU", "", "x", 1, 1, 1)),
        "x may have 1 running job at once (MaxJobsPU), and has 1.",
    ),
    (
        SlurmReason("AssocMaxWall", limit=LimitReached("MaxWall", "", "QOS wall", 3600, 0, 7200)),
        "QOS wall may ask for 1 h at most, and this job asks for 2 h.",
    ),
    (
        SlurmReason("PartitionNodeLimit", nodes=3, nodes_allowed=(NodesAllowed("a", 0, 2, 9),)),
        "it asks for 3 nodes, and partition a gives a job 2 nodes at most (MaxNodes). It can "
        "never start like this: ask for 2 (`scontrol update jobid=7_1 numnodes=2-2`).",
    ),
    (
        SlurmReason(
            "PartitionNodeLimit",
            nodes=1,
            nodes_allowed=(NodesAllowed("a", 4, None, 9), NodesAllowed("b", 2, None, 9)),
        ),
        "it asks for 1 node, and partition a gives a job 4 nodes or more (MinNodes), partition b "
        "gives a job 2 nodes or more (MinNodes). It can never start like this: ask for 2 "
        "(`scontrol update "
        "jobid=7_1 numnodes=2-2`).",
    ),
    (
        SlurmReason("PartitionNodeLimit", nodes=9, nodes_allowed=(NodesAllowed("a", 5, None, 4),)),
        "it asks for 9 nodes, and partition a has 4 nodes. It can never start like this.",
    ),
    (  # as many as it must ask for, and more than there are
        SlurmReason("PartitionNodeLimit", nodes=5, nodes_allowed=(NodesAllowed("a", 5, None, 4),)),
        "it asks for 5 nodes, and partition a has 4 nodes. It can never start like this.",
    ),
    (
        SlurmReason("QOSGrpGRES", lapsed=True),
        "the limit was reached when Slurm last considered the job. There is room in that limit "
        "now; "
        "Slurm shows this reason until it considers the job again.",
    ),
    (
        SlurmReason("QOSGrpGRES", lapsed=True, ahead=2),
        "there is room in that limit for one such job now, but 2 jobs that wait for the same limit "
        "may start before it; Slurm shows this reason until it considers the job again.",
    ),
    (
        SlurmReason("QOSMinGRES", limit=LimitReached("MinTRES", "gres/gpu", "QOS odd", 2, 0, 1)),
        "QOS odd takes no job of fewer than 2 gres/gpu (MinTRES), and this job asks for 1: it "
        "can never start like this.",
    ),
    (
        SlurmReason("x", limit=LimitReached("MaxTRESMins", "gres/gpu", "QOS q", 60, 0, 120.4)),
        "QOS q gives a job 60 gres/gpu minutes at most, by its time limit (MaxTRESMins), and this "
        "job asks for 120: it can never start like this.",
    ),
    (
        SlurmReason("x", limit=LimitReached("GrpTRESRunMins", "gres/gpu", "a", 60, 40.4, 30)),
        "a may have running jobs with 60 gres/gpu minutes left by their time limits "
        "(GrpTRESRunMins), has 40, and this job asks for 30 more.",
    ),
    (
        SlurmReason("x", limit=LimitReached("GrpTRESMins", "cpu", "a", 60, float("inf"), 30)),
        "a may use up 60 cpu minutes (GrpTRESMins), and this job asks for 30 by its time limit "
        "(Slurm does not show here how many are used up).",
    ),
    (
        SlurmReason("x", limit=LimitReached("GrpWall", "wall", "a", 60, None, 90)),
        "a may use up 60 minutes (GrpWall), and this job asks for 90 by its time limit (Slurm does "
        "not show here how many are used up).",
    ),
    (
        SlurmReason("x", limit=LimitReached("GrpTRESRunMins", "cpu", "a", 60, 0, 90, ever=False)),
        "a may have running jobs with 60 cpu minutes left by their time limits (GrpTRESRunMins), "
        "and this job alone asks for 90: it can never start like this.",
    ),
    (
        SlurmReason("x", limit=LimitReached("MaxTRES", "gres/gpu", "QOS q", 2, 0, 4)),
        "QOS q gives a job 2 gres/gpu at most (MaxTRES), and this job asks for 4: it can never "
        "start like this.",
    ),
    (
        SlurmReason("x", limit=LimitReached("MaxTRESPerJob", "cpu", "QOS q", 2, 0, 4)),
        "QOS q gives a job 2 cpu at most (MaxTRESPerJob), and this job asks for 4: it can never "
        "start like this.",
    ),
    (
        SlurmReason("x", limit=LimitReached("MaxTRESPerNode", "mem", "QOS q", 2048, 0, 4096)),
        "QOS q gives a job 2 GiB mem on a node at most (MaxTRESPerNode), and this job asks for "
        "4 GiB: it can never start like this.",
    ),
    (
        SlurmReason("x", limit=LimitReached("GrpTRES", "mem", "a", 4096, 3072, 2048)),
        "a may have 4 GiB mem at once (GrpTRES), has 3 GiB, and this job asks for 2 GiB more.",
    ),
    (
        SlurmReason("x", limit=LimitReached("GrpTRES", "cpu", "a", 4, None, 2)),
        "a may have 4 cpu at once (GrpTRES), has what Slurm does not show, and this job asks for 2 "
        "more.",
    ),
    (
        SlurmReason("x", limit=LimitReached("GrpTRESRunMins", "mem", "a", 60, 40, 30)),
        "a may have running jobs with 60 mem minutes left by their time limits (GrpTRESRunMins), "
        "has 40, and this job asks for 30 more.",  # of megabytes, and not in GiB
    ),
    (
        SlurmReason("PartitionNodeLimit", nodes=1, nodes_allowed=(NodesAllowed("a", 2, None, 9),)),
        "it asks for 1 node, and partition a gives a job 2 nodes or more (MinNodes). It can never "
        "start like this: ask for 2 (`scontrol update jobid=7_1 numnodes=2-2`).",
    ),
    (
        SlurmReason("PartitionNodeLimit", nodes=3, nodes_allowed=(NodesAllowed("a", 0, None, 2),)),
        "it asks for 3 nodes, and partition a has 2 nodes. It can never start like this: ask for 2 "
        "(`scontrol update jobid=7_1 numnodes=2-2`).",
    ),
    (
        SlurmReason("PartitionNodeLimit", nodes=3, nodes_allowed=(NodesAllowed("a", 4, None, 2),)),
        "it asks for 3 nodes, and partition a gives a job 4 nodes or more (MinNodes). It can never "
        "start like this.",  # no number of nodes would do
    ),
    (
        SlurmReason("Priority", stopped=Stopped("assoc_limit_stop", "AssocGrpGRES", "gpu", TRES)),
        "a job of higher priority in partition gpu waits for a limit, AssocGrpGRES (account bio "
        "may have 4 gres/gpu at once (GrpTRES), has 3, and this job asks for 2 more); "
        "SchedulerParameters=assoc_limit_stop makes all jobs of lower priority in that partition "
        "wait until it starts.",
    ),
    (
        SlurmReason("Cleaning"),
        "its last run is still being cleaned up: it is begun again after that.",
    ),
    (
        SlurmReason("Resources", needed=replace(NEEDS, would_do=NodeNames.of("dcab"))),
        "it needs 2 GPUs of type a100, 1 GPU, 8 CPUs, whole nodes on each node on 2 nodes; "
        "a, b, c, d suit it, but not enough is free there now.",
    ),
    (
        SlurmReason("BadConstraints", no_features="a100&ib"),
        "no node of its partition has what --constraint=a100&ib asks for; change it or cancel it.",
    ),
    (
        SlurmReason("Resources", needed=NEEDS, shortage=READY),
        "n1 has enough free for it; its turn has not come, or it would delay jobs that "
        "Slurm "
        "has planned there.",
    ),
    (
        SlurmReason("Resources", needed=NEEDS, shortage=replace(READY, nodes=2)),
        'it asks for 2 nodes, and 1 (n1) has enough free; n2 is drained ("disk swap").',
    ),
    (
        SlurmReason("Priority", goes_first=GoesFirst(2, (), backfills=False), shortage=READY),
        "2 jobs of higher priority in its partition go first.",
    ),
    (
        SlurmReason("Resources", needed=replace(NEEDS, closed=(ClosedNode("n1", "DOWN"),))),
        "it needs 2 GPUs of type a100, 1 GPU, 8 CPUs, whole nodes on each node on 2 nodes; "
        "no node of partition long that suits it is open: n1 (DOWN).",
    ),
    (
        SlurmReason("Priority", goes_first=GoesFirst(0, ("big", "short"), backfills=False)),
        "jobs of partitions big, short go first on the nodes that suit it.",
    ),
    (
        SlurmReason("Licenses", licences=(LicenceAsked("a", 1, 2, 2), LicenceAsked("b", 1, 1, 1))),
        "it asks for 1 licence of a, of which 2 exist and running jobs use 2; 1 licence of b, of "
        "which 1 exist and running jobs use 1.",
    ),
    (
        SlurmReason("PartitionTimeLimit", too_long=TimeLimitTooLong(7200, {"s": 3600}, ("long",))),
        "it asks for 2 h, and partition s allows 1 h. It can never start like this: lower its "
        "time limit "
        "(`scontrol update jobid=7_1 timelimit=60`), or another partition (long).",
    ),
    (
        SlurmReason("BadConstraints"),
        "no node has what it asks for; change it or cancel it.",
    ),
    (
        SlurmReason("AssocGrpGRES"),
        "a limit of its user, account or QOS on what all its jobs have at once.",
    ),
    (SlurmReason("NobodyKnows"), ""),
    (SlurmReason("Reservation"), ""),  # backfill says so of a job that asks for none
]


def test_a_row_that_held_the_words_of_its_code_is_read() -> None:
    older = decode(SlurmReason, {"code": "NodeDown", "meaning": "as it was worded then"})
    assert older == SlurmReason("NodeDown")


@pytest.mark.parametrize(("reason", "text"), SENTENCES)
def test_a_reason_is_a_sentence(reason: SlurmReason, text: str) -> None:
    code = reason.code
    assert headline(reason, "7_1", NOW) == f"Slurm says {code}" + f": {text}" * bool(text)
    first = text.partition(";")[0].rstrip(".")
    last = f"{code}: {first}" if text else code
    started = replace(reason, started=True)
    expected = f"Slurm started it; its last reason to wait was {last}"
    assert whole(started, "7_1", NOW) == expected


def test_many_nodes_are_counted() -> None:
    assert str(NodeNames.of("gfedcba")) == "a, b, c, d, e and 2 more nodes"
    assert str(NodeNames.of("fedcba")) == "a, b, c, d, e, f"


def test_what_is_known_beside_it_is_a_line_each() -> None:
    reason = SlurmReason(
        "JobHeldUser",
        places=(PlaceInLine("long", 0), PlaceInLine("short", 2)),
        priority=12,
        terms=(PriorityTerm("age", 13.6), PriorityTerm("nice", -2.0)),
        plan=PlannedStart(NOW, ("n1", "n2")),
        own="start",
    )
    assert whole(reason, "7_1", NOW).split("\n")[:4] == [
        "Slurm says JobHeldUser: it is held by its user; `scontrol release 7_1` lets it go.",
        "Place: it has the highest priority of the jobs that wait in partition long.",
        "Place: of the jobs that wait in partition short, 2 have a higher priority.",
        "Priority: 12 = age 14 + nice -2.",
    ]
    assert " on n1, n2, if running" in whole(reason, "7_1", NOW)
    assert "would start it now." in whole(reason, "7_1", NOW)
    assert headline(SlurmReason(started=True), "7_1", NOW) == "Slurm started it"


def test_what_is_over_by_now_is_not_in_its_way() -> None:
    held = ReservationHeld("m", NodeNames.of("ab"), NOW - 60, NOW)
    plan = PlannedStart(NOW, ("n1",))
    over = SlurmReason("ReqNodeNotAvail", reservation=held, begins=NOW, plan=plan)
    assert over.as_of(NOW) == SlurmReason("ReqNodeNotAvail")
    assert over.as_of(NOW - 1) == over
    its_own = SlurmReason("Reservation", reservation=ReservationHeld("m"))
    assert its_own.as_of(NOW) == its_own


@pytest.mark.parametrize("reason", [reason for reason, _ in SENTENCES])
def test_a_reason_comes_back_from_json(reason: SlurmReason) -> None:
    held = replace(reason, reservation=ReservationHeld("m", NodeNames.of("ab"), 1.0, 2.0))
    assert decode(SlurmReason, json.loads(json.dumps(encode(held)))) == held


def test_what_other_versions_wrote_is_read() -> None:
    assert decode(SlurmReason, {"code": "Priority", "of_later": [1]}) == SlurmReason("Priority")
    assert encode(SlurmReason("Priority")) == {"code": "Priority"}
    with pytest.raises(TypeError):
        decode(PlaceInLine, {"partition": "long"})


def test_the_node_that_lacks_least_is_told_first() -> None:
    """One with the GPUs, then one that lacks fewer things, then smaller shares of them."""
    gpu, cpus, few = Lack(GPU, 2, 1, 4), Lack(CPU, 8, 6, 16), Lack(CPU, 8, 1, 16)
    nodes = [
        NodeShort("less-of-one", lacks=(cpus,)),
        NodeShort("more-of-one", lacks=(few,)),
        NodeShort("two", lacks=(cpus, Lack("memory", 100, 90, 200))),
        NodeShort("gpus", lacks=(gpu,)),
        NodeShort("gpus-and-cpus", lacks=(gpu, cpus)),
    ]
    backwards = nodes[::-1]  # as a sort leaves equals where they are
    assert sorted(backwards, key=_least) == nodes
