"""The passes of policy `slurm` on small sites: who starts, and Slurm's reason for who does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scheduler.core.policy import Never
from scheduler.slurm.twin.capacity import Capacity
from scheduler.slurm.twin.limits import Hit, Usage, begin_to_age, first_hit
from scheduler.slurm.twin.passes import (
    NOT_AVAILABLE,
    Passes,
    PendingReason,
    closed_to,
    in_order,
    ranks,
)
from scheduler.slurm.twin.policy import Slurm
from scheduler.slurm.twin.priority import Multifactor, duration_s, fair_tree
from scheduler.slurm.twin.site import (
    Ask,
    Assoc,
    Limits,
    Partition,
    Qos,
    Reservation,
    Share,
    Site,
    SiteNode,
)
from scheduler.slurm.twin.twin import (
    SlurmTwin,
    TwinOutlook,
    limited,
    misplaced,
    refused,
    shut_out,
)
from scheduler.slurm.twin.unmodelled import unforeseen, unmodelled

NOW, HOUR = 1_000_000.0, 3600.0
NODES = {
    "a1": SiteNode("a1", 16, 64_000, (("2080ti", 8),), frozenset({"turing"}), weight=10),
    "a2": SiteNode("a2", 32, 128_000, (("a100", 2), ("a100_3g.20gb", 2)), weight=20),
    "c1": SiteNode("c1", 32, 96_000),
}
PARTITIONS = {
    "short": Partition("short", frozenset(NODES), tier=10, max_time_s=HOUR),
    "long": Partition("long", frozenset({"a1", "a2"}), tier=1),
}
SITE = Site(NODES, PARTITIONS, config={"AccountingStorageEnforce": "associations,limits,qos"})


def test_what_is_derived_of_a_request_follows_its_changes() -> None:
    ask = Ask("12_3", submit=7.9, gpus=(("a100", 2), ("", 1)), nodes=2)
    assert (ask.turn, ask.gpus_in_all) == ((7, 12, 3), 3)
    again = replace(ask, job_id="15~1", submit=9.0, gpus_per_node=True)
    assert (again.turn, again.gpus_in_all) == ((9, 15, 0), 6)
    assert Ask("odd").turn == (0, 0, 0)


def job(name: str, *, priority: int = 100, **asked: Any) -> Ask:
    said: dict[str, Any] = {"user": "ada", "account": "ai", "qos": "normal"}
    said |= {"partitions": ("short",), "time_limit_s": HOUR, "submit": NOW} | asked
    gpus = sum(count for _, count in said.get("gpus", ()))
    tres = {"cpu": said.get("cpus", 1), "node": said.get("nodes", 1), "gres/gpu": gpus}
    return Ask(name, priority=priority, tres=tres, **said)


def look(site: Site, *asks: Ask, backfill: bool = True, **known: Any) -> Passes:
    """Both passes over an empty cluster."""
    passes = Passes(site, NOW, Capacity.of(site), Usage(), {}, **known)
    weights = Multifactor(site)
    line = in_order(one for ask in asks for one in ranks(site, ask, weights, NOW))
    passes.main(line, 100)
    if backfill:
        passes.backfill(line, 100, 86_400.0, 1.0)
    return passes


def test_components_start_together_and_keep_their_nodes_until_then() -> None:
    full = job("full", cpus=32, req_nodes=frozenset({"c1"}), priority=999)

    def both(gpus: int) -> Passes:
        parts = job("7+0", features="turing", cpus=4), job("7+1", gpus=(("a100", gpus),))
        after = job("cpus", cpus=4, features="turing", priority=6)
        others = full, job("next", cpus=32, max_nodes=1, exc_nodes=frozenset({"a2"}), priority=998)
        return look(SITE, *others, *parts, after, parts={"7": 2})

    assert on(both(1)) == {"full": ("c1",), "7+0": ("a1",), "7+1": ("a2",)}
    beyond = both(3)
    assert set(on(beyond)) == {"full"}  # as of 26.05: others wait for a node with room
    assert beyond.planned["7+0"] == (NOW, frozenset({"a1"}))


def test_a_component_leaves_its_partition_to_backfill() -> None:
    parts = job("7+0", gpus=(("2080ti", 9),), priority=9), job("7+1", priority=9)
    others = job("1", priority=5), job("2", partitions=("long",), priority=4)  # on nodes of both
    passes = look(SITE, *parts, *others, backfill=False, parts={"7": 2})
    assert on(passes) == {}
    assert why(passes)["1"] == "Priority"


def test_who_finds_no_room_in_a_reservation_has_those_behind_it_there_wait() -> None:
    """Jobs of a course were forecast to start at once that waited for its first."""
    site = replace(
        SITE, reservations=(Reservation("course", frozenset({"a1"}), NOW - 1, NOW + HOUR),)
    )
    full = job("full", reservation="course", gpus=(("2080ti", 8),), priority=9)
    behind = job("1", reservation="course", priority=5)
    passes = look(site, full, replace(full, job_id="next", priority=8), behind, job("2"))
    assert why(passes) == {"next": "Resources", "1": "Priority"}
    assert set(on(passes)) == {"full", "2"}


def on(passes: Passes) -> dict[str, tuple[str, ...]]:
    return {job: tuple(s.node for s in shares) for job, (_, shares) in passes.started.items()}


def why(passes: Passes) -> dict[str, str]:
    return dict(passes.reasons)


def test_a_job_goes_where_it_fits_on_the_lowest_weight() -> None:
    passes = look(
        SITE,
        job("cpu", cpus=4),
        job("any", gpus=(("", 1),)),
        job("mig", gpus=(("a100_3g.20gb", 2),)),
        job("turing", features="turing", cpus=2),
        job("wide", nodes=2, gpus=(("", 2),), gpus_per_node=True, priority=1),
    )
    assert on(passes) == {
        "cpu": ("c1",), "any": ("a1",), "mig": ("a2",), "turing": ("a1",), "wide": ("a1", "a2")
    }  # fmt: skip


def test_gpus_are_found_behind_nodes_that_have_too_few() -> None:
    def found(gpus: int, most: int, *has: tuple[int, int, int]) -> dict[str, tuple[str, ...]]:
        nodes = {
            f"n{i}": SiteNode(f"n{i}", cpus, 64_000, (("a100", count),), weight=weight)
            for i, (cpus, count, weight) in enumerate(has)
        }
        site = replace(SITE, nodes=nodes, partitions={"p": Partition("p", frozenset(nodes))})
        asked = job("it", partitions=("p",), gpus=(("a100", gpus),), max_nodes=most)
        return on(look(site, asked))

    lighter = (32, 4, 1), (8, 6, 5), (16, 4, 1)
    assert found(6, 1, *lighter) == {"it": ("n1",)}
    assert not found(7, 1, *lighter)
    assert found(4, 2, (1, 1, 1), (32, 2, 1), (32, 2, 1)) == {"it": ("n1", "n2")}


def test_a_node_gives_no_more_gpus_than_it_has_memory_for() -> None:
    asked = {"gpus": (("", 3),), "per_gpu": True, "cpus": 3, "partitions": ("long",)}
    fits, split = job("1", memory_mib=20_000, **asked), job("2", memory_mib=30_000, **asked)
    assert on(look(SITE, fits)) == {"1": ("a1",)}
    assert on(look(SITE, split)) == {"2": ("a1", "a2")}  # two here, one there
    assert on(look(SITE, replace(split, max_nodes=1))) == {"2": ("a2",)}
    assert not on(look(SITE, replace(split, gpus_per_node=True, gpus=(("2080ti", 3),))))
    # one of a lower weight with much else to give is not in the way of one that has the memory
    little = SiteNode("n0", 32, 16_000, (("a100", 2), ("h100", 2)), weight=1)
    nodes = {"n0": little, "n1": SiteNode("n1", 8, 64_000, little.gpus, weight=5)}
    site = replace(SITE, nodes=nodes, partitions={"p": Partition("p", frozenset(nodes))})
    asked = {"memory_mib": 6_000, "per_gpu": True, "cpus": 8}
    four = job("4", **asked, partitions=("p",), max_nodes=1)
    in_all, of_each = (("", 4),), (("a100", 2), ("h100", 2))
    assert on(look(site, replace(four, gpus=in_all))) == {"4": ("n1",)}
    assert on(look(site, replace(four, gpus=of_each, gpus_per_node=True))) == {"4": ("n1",)}


def test_a_tier_goes_before_a_priority_and_keeps_its_nodes_from_lower_ones() -> None:
    full = job("full", gpus=(("2080ti", 8),), priority=9)
    passes = look(
        SITE,
        full,
        replace(full, job_id="next", priority=8),
        job("behind", gpus=(("a100", 1),), priority=7),
        job("low", partitions=("long",), gpus=(("a100", 1),), priority=999),
        backfill=False,
    )
    assert on(passes) == {"full": ("a1",)}
    assert why(passes) == {"next": "Resources", "behind": "Priority", "low": "Resources"}


def test_backfill_starts_what_delays_nobody() -> None:
    full = job("full", gpus=(("2080ti", 8),), priority=9)
    passes = look(
        SITE,
        full,
        replace(full, job_id="next", priority=8),
        job("elsewhere", gpus=(("a100", 1),), priority=7),
        job("cpus", cpus=8, features="turing", time_limit_s=HOUR - 1, priority=6),
        job("late", cpus=8, features="turing", partitions=("long",), time_limit_s=2 * HOUR),
    )
    assert set(on(passes)) == {"full", "elsewhere", "cpus"}
    planned = {job: at for job, (at, _) in passes.planned.items()}
    assert planned == {"next": NOW + HOUR, "late": NOW + 2 * HOUR}


LIMITED = Qos("limited", 10, Limits(grp_tres={"gres/gpu": 4}, max_jobs_pu=1))


@pytest.mark.parametrize(
    ("changed", "asks", "reason"),
    [
        ({}, [{"time_limit_s": 2 * HOUR}], "PartitionTimeLimit"),
        ({}, [{"nodes": 9}], "PartitionNodeLimit"),
        ({"qos": {"limited": LIMITED}}, [{"qos": "limited"}] * 2, "QOSMaxJobsPerUserLimit"),
        ({"qos": {"limited": LIMITED}}, [{"qos": "limited", "gpus": (("", 5),)}], "QOSGrpGRES"),
        (
            {"assocs": {("ai", ""): Assoc("ai", limits=Limits(grp_tres={"cpu": 8}))}},
            [{"cpus": 8}, {}],
            "AssocGrpCpuLimit",
        ),
        (
            {"assocs": {("ai", "ada"): Assoc("ai", "ada", limits=Limits(max_jobs=1))}},
            [{}, {}],
            "AssocMaxJobsLimit",
        ),
        ({"licences": {"matlab": 2}}, [{"licences": (("matlab", 2),)}] * 2, "Licenses"),
        ({}, [{"array": "7", "array_limit": 1}] * 2, "JobArrayTaskLimit"),
        (
            {"qos": {"limited": LIMITED}},
            [{"array": "7", "array_limit": 1, "qos": "limited"}] * 2,
            "JobArrayTaskLimit",
        ),
        ({}, [{"reservation": "maint"}], "Reservation"),
        (
            {"reservations": (Reservation("other", frozenset({"a1"}), NOW - 1, NOW + HOUR),)},
            [{"reservation": "maint"}],
            "Reservation",
        ),
        (
            {"reservations": (Reservation("maint", frozenset(NODES), NOW + 60, NOW + HOUR),)},
            [{}],
            "ReqNodeNotAvail",
        ),
    ],
)
def test_the_last_job_waits_for_slurms_own_reason(
    changed: dict[str, Any], asks: Sequence[dict[str, Any]], reason: str
) -> None:
    site = replace(SITE, **changed)
    jobs = [job(str(i), priority=100 - i, **asked) for i, asked in enumerate(asks)]
    passes = look(site, *jobs)
    assert set(on(passes)) == {one.job_id for one in jobs[:-1]}
    last = jobs[-1]
    assert why(passes) == {last.array or last.job_id: reason}


def test_behind_others_a_job_waits_for_its_turn_and_not_yet_for_a_licence() -> None:
    site = replace(SITE, licences={"matlab": 1})
    full = job("full", gpus=(("2080ti", 8),), priority=9, licences=(("matlab", 1),))
    blocked = replace(full, job_id="next", licences=(), priority=8)
    passes = look(site, full, blocked, job("1", licences=(("matlab", 1),), priority=7))
    assert why(passes) == {"next": "Resources", "1": "Priority"}
    last = job("1", licences=(("matlab", 1),), priority=7, cpus=4, time_limit_s=60.0)
    passes = look(replace(site, licences={"matlab": 2}), full, blocked, last)
    assert set(on(passes)) == {"full", "1"}  # backfill takes the last licence there is


@pytest.mark.parametrize(
    ("word", "kept"), [("QOSMaxJobsPerUserLimit", False), ("QOSGrpGRES", True)]
)
def test_backfill_drops_a_limit_that_is_past_and_knows_some_for_none(word: str, kept: bool) -> None:
    full = [job(str(i), gpus=(("2080ti", 8),), priority=9 - i) for i in range(3)]
    said = {"2": word}  # before
    assert why(look(SITE, *full, backfill=False, reasons=dict(said))) == {"1": "Resources", **said}
    left = said if kept else {}
    assert why(look(SITE, *full, reasons=dict(said))) == {"1": "Resources", **left}


def test_a_limit_says_whose_it_is_and_how_far_and_without_enforcement_there_is_none() -> None:
    site = replace(SITE, qos={"limited": LIMITED})
    asked: dict[str, Any] = {"qos": "limited", "gpus": (("", 3),)}
    late = job("2", user="bob", **asked)
    hit = first_hit(late, PARTITIONS["short"], site, look(site, job("1", **asked), late).usage)
    assert isinstance(hit, Hit)
    assert (hit.whose, hit.name) == ("QOS limited", "GrpTRES gres/gpu")
    assert (hit.limit, hit.used, hit.asked, hit.ever) == (4, 3, 3, True)
    assert set(on(look(replace(site, config={}), job("1", **asked), late))) == {"1", "2"}


def test_a_job_alone_on_nodes_has_all_of_them() -> None:
    passes = look(
        SITE, job("alone", nodes=2, exclusive=True), job("x", cpus=1, partitions=("long",))
    )
    (_, shares) = passes.started["alone"]
    assert [(s.node, s.cpus, s.gpus) for s in shares] == [
        ("c1", 32, ()), ("a1", 16, (("2080ti", 8),))
    ]  # fmt: skip
    assert on(passes)["x"] == ("a2",)


def test_what_is_not_modelled_is_counted() -> None:
    site = replace(SITE, qos={"odd": Qos("odd", not_modelled=("GrpTRESMins=cpu=100",))})
    jobs = [job("1", qos="odd"), job("2", qos="odd"), job("3")]
    assert unmodelled(site, jobs) == {"QOS odd: GrpTRESMins=cpu=100": 2}


def test_fair_tree_is_sshares() -> None:
    """As `sshare -l` had it on Slurm 22.05.8."""
    assocs = [
        Assoc("root", usage=3602.0),
        Assoc("root", "root"),
        Assoc("chem", "", "root", 10, 3390.0),
        Assoc("chem", "games", "", 1, 3390.0),
        Assoc("physics", "", "root", 30, 211.0),
        Assoc("physics", "nobody", "", 10, 158.0),
        Assoc("bio", "", "physics", 5, 52.0),
        Assoc("bio", "mail", "", 1, 52.0),
    ]
    found = fair_tree({(a.account, a.user): a for a in assocs})
    assert found == {
        ("root", "root"): 1.0, ("bio", "mail"): 0.75,
        ("physics", "nobody"): 0.5, ("chem", "games"): 0.25,
    }  # fmt: skip


def test_accounts_of_one_level_are_ranked_as_one() -> None:
    assocs = [
        Assoc("root", usage=4.0),
        *(Assoc(name, "", "root", 1, 2.0) for name in ("a", "b")),
        *(Assoc(account, f"{account}{i}", "", 1, 1.0) for account in ("a", "b") for i in (1, 2)),
    ]
    found = fair_tree({(a.account, a.user): a for a in assocs})
    assert set(found.values()) == {1.0}


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7-00:00:00", 604_800), ("1-0", 86_400), ("01:00:00", 3600), ("30", 1800), ("05:30", 330),
     ("5 sec", 5), ("UNLIMITED", None), ("", None)],
)  # fmt: skip
def test_durations(said: str, seconds: float | None) -> None:
    assert duration_s(said) == seconds


@pytest.mark.parametrize(("priority", "jobsize"), [(6250, 6250.0), (10_000, 10_000.0)])
def test_a_job_is_sized_as_slurm_sized_it(priority: int, jobsize: float) -> None:
    config = {"PriorityType": "priority/multifactor", "PriorityWeightJobSize": "20000"}
    part = Partition("p", frozenset("ab"))
    site = Site({n: SiteNode(n, 4, 1.0) for n in "ab"}, {"p": part}, config=config)
    ask = Ask("1", partitions=("p",), cpus=4, sizes=((1, 1), (1, 4)), priority=priority)
    assert Multifactor(site).terms(ask, part, 0.0).jobsize == jobsize


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        ({"groups": frozenset({"others"})}, ""),  # it is in the queue: Slurm has let it in
        ({"no_accounts": frozenset({"physics"})}, "AccountNotAllowed"),
        ({"accounts": frozenset({"chem"})}, "AccountNotAllowed"),
        ({"no_qos": frozenset({"high"})}, "QOSNotAllowed"),
        ({"all_qos": frozenset({"normal"})}, "QOSNotAllowed"),
        ({"max_nodes": 1, "max_time_s": HOUR}, ""),
        ({"max_nodes": 0}, "PartitionNodeLimit"),
    ],
)
def test_a_partition_takes_whom_it_allows(of: dict[str, Any], reason: str) -> None:
    part = Partition("p", frozenset("a"), **of)
    ask = Ask("1", user="ada", account="physics", qos="high", partitions=("p",), time_limit_s=HOUR)
    assert closed_to(ask, part) == reason


def test_a_named_node_of_a_higher_weight_is_waited_for_with_those_below_it() -> None:
    """`sbatch -w` on a site with weights ended every look at the queue with a KeyError."""
    passes = look(
        SITE,
        job("on a2", req_nodes=frozenset({"a2"}), gpus=(("a100", 2),)),
        job("and one more", req_nodes=frozenset({"a2"}), nodes=2, cpus=2, priority=1),
    )
    assert on(passes) == {"on a2": ("a2",), "and one more": ("a2", "c1")}


def test_a_node_would_do_that_can_do_its_part_and_a_reservation_is_blamed_for_such() -> None:
    """Nodes without such GPUs were named, and reservations on nodes that no help to the job."""
    a1, a2 = frozenset({"a1"}), frozenset({"a2"})
    held = tuple(Reservation(name, on, NOW, NOW + HOUR) for name, on in (("A", a1), ("B", a2)))
    passes = Passes(replace(SITE, reservations=held), NOW, Capacity.of(SITE), Usage(), {})
    part = PARTITIONS["short"]

    def told(**asked: Any) -> tuple[list[str], str]:
        ask = job("j", **asked)
        return passes.would_do(ask, NODES), passes.shut_by(ask, part)

    pairs = {"nodes": 2, "gpus_per_node": True, "cpus": 2}
    assert told(gpus=(("2080ti", 8),), **pairs) == (["a1"], "A")
    assert told(gpus=(("a100", 2),), max_nodes=1) == (["a2"], "B")
    assert told(cpus=32, max_nodes=1) == (["a2", "c1"], "B")
    assert told(features="tpu") == ([], "")
    # of so many GPUs in all, on any number of nodes: where one has them, those with fewer are none
    assert told(gpus=(("", 5),)) == (["a1"], "A")
    assert told(gpus=(("", 9),)) == (["a1", "a2"], "A")
    five, nine = (job("j", gpus=(("", count),)) for count in (5, 9))
    assert passes.would_do(five, ["a2"]) == []  # while that one is down or kept from it
    assert passes.would_do(nine, ["a2"]) == ["a2"]


@pytest.mark.parametrize(
    ("kind", "waits", "runs", "touched"),
    [
        ("preempt/partition_prio", {}, {"partitions": ("long",)}, True),
        ("preempt/partition_prio", {"partitions": ("long",)}, {}, False),
        ("preempt/partition_prio", {}, {}, False),
        ("preempt/qos", {"qos": "high"}, {"qos": "low"}, True),
        ("preempt/qos", {"qos": "high"}, {"qos": "high"}, False),
        ("preempt/none", {"qos": "high"}, {"qos": "low"}, False),
    ],
)
def test_whom_a_suspended_job_makes_way_for_is_not_foreseen(
    kind: str, waits: dict[str, Any], runs: dict[str, Any], touched: bool
) -> None:
    def suspending(mode: str) -> Site:
        parts = {name: replace(part, preempted=mode) for name, part in PARTITIONS.items()}
        qos = {"high": Qos("high", preempts=frozenset({"low"})), "low": Qos("low", preempted=mode)}
        return replace(SITE, partitions=parts, qos=qos, config={"PreemptType": kind})

    ran = job("ran", shares=(Share("a1", 1, 1.0),), **runs)
    why = {"new": "not modelled: it may preempt 1 running job"} if touched else {}
    assert unforeseen(suspending("SUSPEND"), [job("new", **waits)], [ran]) == why
    for known in ("REQUEUE", "CANCEL"):
        assert not unforeseen(suspending(known), [job("new", **waits)], [ran])


@pytest.mark.parametrize(
    ("names", "never"),
    [(("tight",), True), (("tight", "wide"), False), (("tight", "down"), False), ((), False)],
)
def test_what_one_of_its_partitions_takes_is_not_refused(
    names: tuple[str, ...], *, never: bool
) -> None:
    nodes = frozenset({"a1", "a2"})
    parts = {"tight": Partition("tight", nodes, max_nodes=1), "wide": Partition("wide", nodes)}
    parts["down"] = replace(parts["wide"], name="down", up=False)
    ask = job("1", nodes=2, partitions=names)
    twin = cast("SlurmTwin", SimpleNamespace(asked=lambda _: ask, site=Site({}, parts)))
    assert refused(twin, "1") is never
    if never:
        assert TwinOutlook(twin).never("1") is Never.REFUSED


def test_what_a_limit_never_lets_start_takes_the_other_components_with_it() -> None:
    """A future that waited for such a job took all the time, and nobody had a forecast."""
    most = Qos("limited", limits=Limits(max_tres_pu={"gres/gpu": 4}))
    wide = Partition("wide", frozenset(NODES), qos="open")
    over = Qos("open", limits=Limits(max_tres_pu={"gres/gpu": 9}), first=True)
    site = replace(
        SITE, qos={"limited": most, "open": over}, partitions=PARTITIONS | {"wide": wide}
    )
    word = "QOSMaxGRESPerUser"
    many, few = (job("x", qos="limited", gpus=(("", n),), reason=word) for n in (7, 4))
    asks = {
        "1": many, "2": few, "3+0": replace(few, job_id="3+0"), "3+1": replace(many, job_id="3+1"),
        "4": replace(many, partitions=("short", "wide")), "5": replace(many, reason="Priority"),
    }  # fmt: skip
    twin = cast("SlurmTwin", SimpleNamespace(asked=asks.get, site=site))
    assert [one for one in asks if limited(twin, one)] == ["1", "3+0", "3+1"]
    assert not any(refused(twin, one) for one in asks)


def test_a_reservation_without_its_gpus_never_has_a_job_start() -> None:
    """Its start was forecast for soon, look after look, while the course lasted."""
    course = Reservation("course", frozenset({"c1"}), NOW, NOW + HOUR)
    flexible = replace(course, name="flexible", flags=frozenset({"FLEX"}))
    site = replace(SITE, reservations=(course, flexible))
    gpus = (("a100", 1),)
    asks = {
        "1": job("1", reservation="course", gpus=gpus), "2": job("2", reservation="course"),
        "3": job("3", reservation="flexible", gpus=gpus), "4": job("4", gpus=gpus),
        "5": job("5", reservation="course", exc_nodes=frozenset({"c1"})),
        "6": job("6", reservation="over", gpus=gpus),
    }  # fmt: skip
    twin = cast("SlurmTwin", SimpleNamespace(asked=asks.get, site=site))
    assert [one for one in asks if misplaced(twin, one)] == ["1", "5"]


def test_as_many_jobs_age_as_limits_let_those_that_came_first() -> None:
    site = replace(
        SITE,
        qos={"high": Qos("high", limits=Limits(max_accrue_pu=2)), "normal": Qos("normal")},
        assocs={
            ("root", ""): Assoc("root"), ("ai", ""): Assoc("ai", parent="root"),
            ("bio", ""): Assoc("bio", parent="root", limits=Limits(grp_accrue=1, max_accrue=0)),
            ("bio", "eva"): Assoc("bio", "eva", parent="bio"),
            ("bio", "joe"): Assoc("bio", "joe", parent="bio", limits=Limits(max_accrue=0)),
        },
    )  # fmt: skip
    ages = job("old", qos="high", accrue=NOW)
    new = [job(name, qos="high") for name in ("a", "b")]
    other = [job("c", qos="high", user="bob"), job("d")]
    bio = [job(name, user=name[:3], account="bio") for name in ("joe1", "eva1", "eva2")]
    assert begin_to_age([*new, ages, *other, *bio], site) == ["a", "c", "d", "eva1"]
    free = replace(site, config={"AccountingStorageEnforce": "associations"})
    everybody = [ask.job_id for ask in (*new, *other, *bio)]
    assert begin_to_age([*new, ages, *other, *bio], free) == everybody


def test_the_first_of_two_reservations_that_is_over_is_what_a_job_is_kept_for() -> None:
    first, last = (Reservation(f"r{n}", frozenset({"a1"}), NOW, NOW + n * HOUR) for n in (1, 2))
    past = Reservation("past", frozenset({"a1"}), NOW - HOUR, NOW - 1.0)
    elsewhere = Reservation("else", frozenset({"gone"}), NOW, NOW + 60.0)
    kept = PendingReason(NOT_AVAILABLE, reservation="r1")
    twin = cast("SlurmTwin", SimpleNamespace(
        reasons={"1": kept}, asked={"1": job("1")}.get, evidence=lambda *_: kept,
        site=replace(SITE, reservations=(last, past, elsewhere, first)),
    ))  # fmt: skip
    assert TwinOutlook(twin).kept_until("1", NOW) == NOW + HOUR


def test_shut_out_is_only_who_lacks_the_closed_nodes() -> None:
    nodes = {**NODES, "a2": replace(NODES["a2"], open=False)}
    asks = {
        "1": job("1", gpus=(("a100", 1),)), "2": job("2"), "3": job("3", gpus=(("h100", 1),)),
        "4": job("4", nodes=3), "5": job("5", nodes=2),
    }  # fmt: skip
    twin = cast("SlurmTwin", SimpleNamespace(asked=asks.get, site=replace(SITE, nodes=nodes)))
    assert [one for one in asks if shut_out(twin, one)] == ["1", "4"]


@pytest.mark.parametrize(
    ("reason", "named"),
    [("QOSGrpGRES", True), ("QOSGrpCpuLimit", False), ("AssocGrpGRES", False)],
)
def test_the_limit_that_is_named_is_the_one_of_the_reason(reason: str, named: bool) -> None:
    """A job may meet another limit by now than the one that Slurm gave as its reason."""
    site = replace(SITE, qos={"limited": LIMITED})
    asks = {i: job(i, qos="limited", gpus=(("", 3),), user=f"u{i}") for i in ("1", "2")}
    policy = Slurm()
    policy.see(site, list(NODES), asks, now=NOW)
    policy._usage = look(site, asks["1"]).usage
    policy.reasons["2"] = PendingReason(reason)
    found = policy.evidence("2", NOW)
    assert found is not None
    assert found.reason == reason
    assert (found.hit is not None) == named
    assert found.hit is None or (found.hit.name, found.hit.reason) == ("GrpTRES gres/gpu", reason)
