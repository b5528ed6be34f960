"""The table of what is known of Slurm, and the names of limits as slurmctld has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.slurm.codes import Family, family, limit_codes
from scheduler.slurm.read.tres import ENDLESS, other_gres
from scheduler.slurm.twin.known import Known, lines, parameter
from scheduler.slurm.twin.limits import Usage, _named, first_hit, is_set, minutes_hit
from scheduler.slurm.twin.site import (
    Ask,
    Assoc,
    Limits,
    Partition,
    Qos,
    Running,
    Share,
    Site,
    SiteNode,
)
from scheduler.slurm.twin.unmodelled import unmodelled

PART = Partition("p", frozenset({"n1"}))
SITE = Site(
    {"n1": SiteNode("n1", 32, 1e5, (("", 8),))},
    {"p": PART},
    config={"AccountingStorageEnforce": "associations,limits,qos"},
)
TRES = {"cpu": 4.0, "mem": 2048.0, "node": 2.0, "gres/gpu": 4.0}
ASK = Ask(
    "1", user="ada", account="lab", qos="odd", partitions=("p",), nodes=2, tres=TRES,
    time_limit_s=7200.0,
)  # fmt: skip


def site(limits: Limits, of: str) -> Site:
    if of == "qos":
        return replace(SITE, qos={"odd": Qos("odd", limits=limits)})
    return replace(SITE, assocs={("lab", ""): Assoc("lab", limits=limits)})


@pytest.mark.parametrize(
    ("of", "limits", "reason", "ever"),
    [
        ("qos", Limits(min_tres={"gres/gpu": 8}), "QOSMinGRES", False),
        ("qos", Limits(min_tres={"cpu": 8}), "QOSMinCpuNotSatisfied", False),
        ("qos", Limits(max_tres_pn={"gres/gpu": 1}), "QOSMaxGRESPerNode", False),
        ("qos", Limits(max_tres_mins={"gres/gpu": 400}), "QOSMaxGRESMinutesPerJob", False),
        ("qos", Limits(max_tres_pa={"gres/gpu": 5}), "MaxGRESPerAccount", True),
        ("qos", Limits(max_tres_pa={"mem": 3000}), "MaxMemoryPerAccount", True),
        ("qos", Limits(max_tres_pu={"cpu": 5}), "QOSMaxCpuPerUserLimit", True),
        ("qos", Limits(grp_tres={"mem": 3000}), "QOSGrpMemLimit", True),
        ("assoc", Limits(max_tres={"mem": 100}), "AssocMaxMemPerJob", False),
        ("assoc", Limits(max_tres_mins={"cpu": 100}), "AssocMaxCpuMinutesPerJobLimit", False),
        ("assoc", Limits(max_tres_pn={"mem": 100}), "AssocMaxMemPerNode", False),
        ("assoc", Limits(grp_tres={"gres/gpu": 5}), "AssocGrpGRES", True),
    ],
)
def test_limits_have_slurms_names(of: str, limits: Limits, reason: str, ever: bool) -> None:
    used = Usage()
    used.add(replace(ASK, job_id="0", shares=(Share("n1", 1, 1.0),)), SITE)
    hit = first_hit(ASK, PART, site(limits, of), used)
    assert hit is not None
    assert (hit.reason, hit.ever) == (reason, ever)
    # room is only ever spoken of where a limit on what all have at once is known
    assert is_set(reason, ASK, PART, site(limits, of)) is ever
    assert not is_set(reason, ASK, PART, SITE)


@pytest.mark.parametrize("of", ["qos", "assoc"])
def test_a_job_that_shares_no_node_counts_as_all_of_its_cpus(of: str) -> None:
    """One CPU on a node of 32 by itself was to start at once under a limit of four."""
    few = site(Limits(grp_tres={"cpu": 4}), of)
    one = replace(ASK, nodes=1, tres={"cpu": 1.0, "node": 1.0})
    assert first_hit(one, PART, few, Usage()) is None
    hit = first_hit(replace(one, exclusive=True), PART, few, Usage())
    assert hit is not None
    assert (hit.reason[-11:], hit.asked, hit.ever) == ("GrpCpuLimit", 32.0, False)


def test_every_name_that_can_be_made_is_one_of_slurms() -> None:
    known, tres = set(limit_codes()), ("cpu", "mem", "node", "billing", "gres/gpu:a", "license/x")
    of_all = {
        ("QOS", "Grp"): ("", "Minutes", "RunMinutes"),
        ("QOS", "Max"): ("PerJob", "PerUser", "MinutesPerJob"),
        ("", "Max"): ("PerAccount", "RunMinsPerUser", "RunMinsPerAccount"),
        ("QOS", "Min"): ("",),
        ("Assoc", "Grp"): ("", "Minutes", "RunMinutes"),
        ("Assoc", "Max"): ("PerJob", "MinutesPerJob"),
    }
    made = {_named(*of, one, per) for of, pers in of_all.items() for per in pers for one in tres}
    assert made <= known
    assert all(family(code) for code in known)
    assert family("Resources") is family("QOSNotAllowed") is family("AssociationJobLimit") is None


def test_minutes_that_running_jobs_have_left_are_counted_and_those_used_up_are_not_known() -> None:
    limits = Limits(grp_run_mins={"gres/gpu": 600}, grp_mins={"cpu": 1000})
    ran = replace(ASK, job_id="0", shares=(Share("n1", 1, 1.0),))
    running = [Running(ran, 0.0, 6000.0)]
    for of, reason, whose in (
        ("qos", "QOSGrpGRESRunMinutes", "QOS odd"),
        ("assoc", "AssocGrpGRESRunMinutes", "account lab"),
    ):
        hit = minutes_hit(reason, ASK, PART, site(limits, of), running, 3000.0)
        assert hit is not None
        assert (hit.limit, hit.used, hit.asked) == (600, 4 * 50, 4 * 120)
        assert hit.whose == whose
        assert family(reason) is Family.MINUTES
        assert not is_set(reason, ASK, PART, site(limits, of))
    hit = minutes_hit("QOSGrpCPUMinutesLimit", ASK, PART, site(limits, "qos"), [], 0.0)
    assert hit is not None
    assert hit.used == float("inf")


def test_minutes_that_a_user_or_an_account_has_left_in_a_qos_are_counted() -> None:
    limits = Limits(run_mins_pu={"cpu": 600}, run_mins_pa={"gres/gpu": 900})
    mine = replace(ASK, job_id="0", shares=(Share("n1", 1, 1.0),))
    running = [
        Running(mine, 0.0, 6000.0),
        Running(replace(mine, job_id="2", user="bea"), 0.0, 6000.0),
        Running(replace(mine, job_id="3", account="far"), 0.0, 6000.0),
        Running(replace(mine, job_id="4", qos="other"), 0.0, 6000.0),
    ]
    of_user = minutes_hit(
        "MaxCpuRunMinsPerUser", ASK, partition=PART, site=site(limits, "qos"), running=running,
        now=3000.0,
    )  # fmt: skip
    assert of_user is not None
    assert (of_user.whose, of_user.name) == ("user ada in QOS odd", "MaxTRESRunMinsPU cpu")
    assert (of_user.limit, of_user.used, of_user.asked) == (600, 2 * 4 * 50, 4 * 120)
    of_account = minutes_hit(
        "MaxGRESRunMinsPerAccount", ASK, partition=PART, site=site(limits, "qos"), running=running,
        now=3000.0,
    )  # fmt: skip
    assert of_account is not None
    assert (of_account.whose, of_account.used) == ("account lab in QOS odd", 2 * 4 * 50)
    for code in ("MaxCpuRunMinsPerUser", "MaxGRESRunMinsPerAccount"):
        assert family(code) is Family.MINUTES
        assert not is_set(code, ASK, PART, site(limits, "qos"))
    assert family("MaxCpuRunMins") is None


def test_what_the_table_lacks_is_not_modelled_and_named() -> None:
    assert parameter("bf_window") is Known.MODELLED
    assert parameter("a_word_of_a_later_release") is Known.NAMED
    config = {"SchedulerParameters": "bf_window=60,assoc_limit_stop,bf_yield_sleep=9,new_word=1"}
    found = unmodelled(replace(SITE, config=config), [ASK, ASK])
    assert found == {
        "SchedulerParameters=assoc_limit_stop": 2, "SchedulerParameters=new_word": 2
    }  # fmt: skip
    table = list(lines())
    assert len(table) == len(set(table))
    assert sum(line.startswith("Reason ") for line in table) > 180


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gres:gpu:1,gres:nvme:80", {"nvme": 80}),
        ("gres/gpu:a100:2,gres/nvme:fast:3", {"nvme:fast": 3}),
        ("gpu:8(S:0-1),lscratch:3200", {"lscratch": 3200}),
        ("lustre:no_consume:4G", {"lustre": ENDLESS}),
        ("tmp:2K,tmp", {"tmp": 2049}),
        ("N/A", {}), ("(null)", {}), ("", {}),
    ],
)  # fmt: skip
def test_gres_beside_gpus_are_read(text: str, found: dict[str, int]) -> None:
    assert other_gres(text) == found
