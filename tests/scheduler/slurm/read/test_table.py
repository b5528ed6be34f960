"""The cheap table of the queue: what users write cannot forge it, and what is the same is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.job import Job
from scheduler.core.durations import seconds_of
from scheduler.core.estimates import Estimate, Estimator
from scheduler.slurm.read.client import Slurm, SlurmDown
from scheduler.slurm.read.parse import Node, ParseError, SlurmJob, hosts
from scheduler.slurm.read.parse import nodes as parse_nodes
from scheduler.slurm.read.site import asks_of
from scheduler.slurm.read.snapshot import Asking
from scheduler.slurm.read.table import (
    COLUMNS,
    FEW,
    SINGLY,
    Table,
    _asks_for,
    held,
    on_gpus,
    read,
)
from scheduler.slurm.read.versions import OLDEST, Release
from scheduler.slurm.twin.site import Site

PLAIN = {
    "JobArrayID": "7", "State": "PENDING", "PriorityLong": "4294901757", "SubmitTime": "1795284778",
    "EligibleTime": "1795284778", "StartTime": "N/A", "EndTime": "NONE", "Reason": "Resources",
    "UserName": "ada", "Partition": "main", "NumNodes": "2", "NumCPUs": "8", "NumTasks": "4",
    "TimeLimit": "1-02:00:00", "MinMemory": "50M", "tres-per-job": "N/A",
    "tres-per-node": "gres:gpu:a100:2", "tres-per-task": "N/A",
    "tres-alloc": "cpu=8,mem=400M,node=2,billing=8", "NodeList": "", "Reservation": "(null)",
    "Dependency": "(null)", "Account": "ai", "QOS": "normal", "Nice": "0", "ReqNodes": "",
    "SchedNodes": "(null)",
    "MinCPUs": "1", "mem-per-tres": "N/A", "OverSubscribe": "OK", "AccrueTime": "N/A",
    "cpus-per-tres": "N/A", "Deadline": "N/A", "Contiguous": "0", "ReqSwitch": "0",
}  # fmt: skip
DETAIL = "     Nodes={} CPU_IDs=0 Mem=100 GRES=gpu:2(IDX:{})\n"


def record(name: str = "a", **said: str) -> str:
    values = {**PLAIN, **{key.replace("_", "-"): value for key, value in said.items()}}
    return "".join(f"{values[column]}|" for column in COLUMNS) + name


def jobs(plain: str, constraint: str = "(null)", **more: Any) -> list[SlurmJob]:
    return read(plain, constraint, "(null)", "(null)", **more)


class Printed(Slurm):
    """A Slurm whose commands print what the test says."""

    def __init__(self, *records: tuple[str, str]) -> None:
        super().__init__()
        self.records, self.details, self.whole = list(records), dict[str, str](), list[SlurmJob]()
        self.asked: list[str] = []
        self.out, self.told = dict[str, str](), list[str]()  # excluded nodes, and who was asked for

    def table(self, columns: str) -> str:
        (between,) = re.findall(r"Name:(\|[0-9a-f]{16}\|)", columns)
        (end,) = re.findall(r"Comment:(\|[0-9a-f]{16}\.)$", columns)
        return "".join(
            f"{plain}{between}(null){between}(null){between}{comment}{end}\n"
            for plain, comment in self.records
        )

    def release(self) -> Release:
        return OLDEST

    def read(self, *command: str) -> str:
        job_id = command[command.index("-j") + 1] if "-j" in command else ""
        self.told.append(job_id)
        assert command[-2:] == ("-o", "%i|%x"), "of a part of a heterogeneous job %F is no such id"
        return "\n".join(
            f"{one}|{nodes}"
            for one, nodes in self.out.items()
            if not job_id or one.partition("_")[0] == job_id
        )

    def detail(self, job_id: str) -> str:
        self.asked.append(job_id)
        return self.details[job_id]

    def jobs(self) -> list[SlurmJob]:
        self.asked.append("--json")
        return self.whole


def test_a_record_is_a_job() -> None:
    (job,) = jobs(record("x|y"))
    assert job == SlurmJob(
        "7", "PENDING", "ada", "x|y", "main", 1795284778.0, 1795284778.0, priority=4294901757,
        max_nodes=4,
        reason="Resources", gpus=4, gpu_type="a100", num_nodes=2, cpus=8, memory_mib=400.0,
        time_limit_s=93_600.0, account="ai", qos="normal", least_mib=50.0, per="cpu",
        gpu_types=(("a100", 2),), gpus_per_node=True,
        tres=(("cpu", 8.0), ("mem", 400.0), ("node", 2.0), ("billing", 8.0)),
    )  # fmt: skip


def test_a_job_that_was_cancelled_while_it_waited_never_began() -> None:
    over = {"State": "CANCELLED", "StartTime": "1795284800", "EndTime": "1795284800"}
    (waited,) = jobs(record(**over))
    (ran,) = jobs(record(**over, NodeList="n1"))
    assert (waited.start, waited.end) == (None, 1795284800.0)
    assert ran.start == 1795284800.0


def test_cpus_of_each_gpu_are_asked_for() -> None:
    said = record(
        NumNodes="1", NumCPUs="1", NumTasks="1", tres_per_node="N/A", tres_per_job="gres:gpu:2",
        cpus_per_tres="gres:gpu:2",
    )  # fmt: skip
    (ask,) = asks_of(jobs(said), Site({}, {})).values()
    assert (ask.cpus, ask.min_cpus, ask.sizes) == (4, 1, ((1, 1), (1, 4)))


@pytest.mark.parametrize(
    ("said", "what", "value"),
    [
        ({"TimeLimit": "UNLIMITED"}, "time_limit_s", None),
        ({"TimeLimit": "Partition_Limit"}, "time_limit_s", None),
        ({"TimeLimit": "05:30"}, "time_limit_s", 330.0),
        ({"TimeLimit": "10:00:00"}, "time_limit_s", 36_000.0),
        # memory is told per node or for all CPUs
        ({"MinMemory": "50M", "tres_alloc": "cpu=8,mem=100M,node=2"}, "memory_mib", 50.0),
        ({"MinMemory": "62.5G", "tres_alloc": "cpu=8,mem=125G,node=2"}, "memory_mib", 64_000.0),
        ({"MinMemory": "0", "tres_alloc": "cpu=8,mem=8G,node=2"}, "memory_mib", None),
        # and what the policy does not know of a job
        ({"Deadline": "1795284979"}, "deadline", 1795284979.0),
        ({"Contiguous": "1", "ReqSwitch": "2"}, "odd", ("--contiguous", "--switches")),
    ],
)
def test_columns_say(said: dict[str, str], what: str, value: object) -> None:
    (job,) = jobs(record(**said))
    assert getattr(job, what) == value


@pytest.mark.parametrize(
    "said",
    [
        {"tres_per_job": "gres:gpu:4"},
        {"tres_per_node": "gres:gpu:h100:2,gres:nvme:4"},
        {"tres_per_node": "N/A", "tres_per_task": "gres:gpu:1"},
        {"tres_per_node": "N/A", "tres_per_task": "gres:gpu:1", "NumTasks": "8"},
        {"cpus_per_tres": "gres:gpu:2"},
        {"mem_per_tres": "gres:gpu:100"},
        {"mem_per_tres": "gres:gpu:100", "MinMemory": "70M"},
        {"tres_alloc": "cpu=8,mem=100M,node=2"},
        {"tres_alloc": "cpu=8,mem=-1M"},
        {"tres_alloc": "cpu=8,mem=400M,node=3"},
        {"MinMemory": "60M"},
    ],
)
def test_what_a_job_asks_for_is_the_same_whatever_was_read_before(said: dict[str, str]) -> None:
    told = record(**said)
    _asks_for.cache_clear()
    alone = jobs(told)
    _asks_for.cache_clear()
    assert jobs(record()) != alone
    assert jobs(told) == alone
    assert jobs(told) == alone


def test_the_tasks_of_an_array_that_wait_are_jobs() -> None:
    found = jobs(record(JobArrayID="9_[1-3,7%2]"))
    assert [job.id for job in found] == ["9_1", "9_2", "9_3", "9_7"]
    assert jobs(record(JobArrayID="9_4"))[0].id == "9_4"


@pytest.mark.parametrize("text", ["", "|", record(State=""), "1|2|3"])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        jobs(text)


def test_names_and_comments_forge_nothing() -> None:
    forged = "\n" + record(JobArrayID="1", State="RUNNING", NodeList="n1")
    slurm = Printed((record("a" + forged), "c" + forged), (record("b", JobArrayID="8"), ""))
    found = Table(slurm).jobs()
    assert [(job.id, job.name, job.comment) for job in found] == [
        ("7", "a" + forged, "c" + forged),
        ("8", "b", ""),
    ]


def test_a_record_that_is_the_same_is_the_same_object() -> None:
    other = record("b", JobArrayID="8")
    slurm = Printed((record(), ""), (other, ""))
    table = Table(slurm)
    first, second = table.jobs()
    slurm.records[0] = record(PriorityLong="3"), ""
    again = table.jobs()
    assert again[0] == replace(first, priority=3)
    assert again[1] is second


def test_where_a_job_runs_is_asked_once() -> None:
    started = {"State": "RUNNING", "StartTime": "1795284779", "NodeList": "n[1-2]"}
    slurm = Printed((record(**started), ""))
    slurm.details["7"] = DETAIL.format("n2", "4-5") + DETAIL.format("n1", "0,3")
    table = Table(slurm)
    assert table.jobs()[0].held_gpus == ((0, 3), (4, 5))
    slurm.records[0] = record(**started, Reason="None"), ""
    slurm.records.append((record(**started, JobArrayID="8", tres_per_node="N/A"), ""))
    assert [job.held_gpus for job in table.jobs()] == [((0, 3), (4, 5)), ()]
    slurm.records[0] = record(**started | {"State": "COMPLETING"}), ""
    assert table.jobs()[0].held_gpus == ((0, 3), (4, 5))
    assert slurm.asked == ["7"]
    slurm.records[0] = record(**started | {"StartTime": "1795284999"}), ""  # it was put back
    table.jobs()
    assert slurm.asked == ["7", "7"]


def test_where_it_runs_is_asked_again_when_slurm_did_not_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = {"State": "RUNNING", "StartTime": "1795284779", "NodeList": "n[1-2]"}
    waits = record(JobArrayID="8")
    slurm = Printed((waits, ""))
    table = Table(slurm)
    (before,) = table.jobs()
    slurm.records.append((record(**started), ""))
    slurm.details["7"] = DETAIL.format("n[1-2]", "0-1")

    def no_answer(job_id: str) -> str:
        raise SlurmDown("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(slurm, "detail", no_answer)
        with pytest.raises(SlurmDown):
            table.jobs()
    for _ in range(2):
        found = table.jobs()
        assert found[0] is before
        assert found[1].held_gpus == ((0, 1), (0, 1))
    assert slurm.asked == ["7"]


def test_many_that_began_at_once_are_read_in_one() -> None:
    started = {"State": "RUNNING", "StartTime": "1795284779", "NodeList": "n[1-2]"}
    ids = [str(number) for number in range(SINGLY + 1)]
    slurm = Printed(*[(record(JobArrayID=job_id, **started), "") for job_id in ids])
    slurm.whole = [
        replace(jobs(plain)[0], held_gpus=((0, 1), (0, 1))) for plain, _ in slurm.records
    ]
    assert {job.held_gpus for job in Table(slurm).jobs()} == {((0, 1), (0, 1))}
    assert slurm.asked == ["--json"]


def test_a_name_that_forges_gpus_has_the_job_read_by_json() -> None:
    text = f"JobId=7 JobName=x\n{DETAIL.format('n[1-2]', '0')}" + DETAIL.format("n[1-2]", "5")
    assert held(text, hosts("n[1-2]")) is None
    counted = "     Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:2(CNT:2)\n"
    assert held(counted, ("n1",)) == (), "not known, but nothing is forged"
    started = {"State": "RUNNING", "StartTime": "1795284779", "NodeList": "n[1-2]"}
    slurm = Printed((record(**started), ""))
    slurm.details["7"] = text
    slurm.whole = [replace(jobs(record(**started))[0], held_gpus=((5,), (5,)))]
    assert Table(slurm).jobs()[0].held_gpus == ((5,), (5,))
    assert slurm.asked == ["7", "--json"]


def test_a_name_that_forges_a_million_nodes_has_none_of_them_made() -> None:
    nodes = ",".join(["1-99999999"] * 90)
    forged = f"JobName=x\n{DETAIL.format(f'n[{nodes}]', '0')}" * 5
    begun = thread_time()
    for text in (forged, forged.replace("-99999999", "-99999")):
        assert held(text + DETAIL.format("n[1-2]", "5"), hosts("n[1-2]")) is None
        with pytest.raises(ParseError, match="too long"):
            hosts(f"n[{nodes}]")
    assert thread_time() - begun < 0.1


def test_another_version_is_read_by_json_which_is_said_once() -> None:
    slurm = Printed(("nothing known", ""))
    slurm.whole = [jobs(record())[0]]
    said: list[str] = []
    table = Table(slurm, warn=lambda event, **_: said.append(event))
    assert table.jobs() == slurm.whole == table.jobs()
    assert said == ["slurm_table_unread"]


def test_a_job_is_estimated_once_and_again_in_its_turn() -> None:
    class Counting(Estimator):
        asked = 0

        def estimate(self, job: Job, now: float) -> Estimate:
            self.asked += 1
            return Estimate(float(self.asked))

    counting = Counting()
    asking = Asking(counting, every=4)
    jobs = [Job(str(number), 0.0, 1) for number in range(100)]
    counts = []
    for _ in range(8):
        before = counting.asked
        asking.turn()
        for job in jobs * 2:
            asking.enqueued(job, 0.0)
        counts.append(counting.asked - before)
    assert counts[0] == 100
    assert sum(counts[1:5]) == sum(counts[2:6]) == 100
    asking.forget()
    asking.turn()
    asking.enqueued(jobs[0], 0.0)
    changed = replace(jobs[0], time_limit_s=60.0)
    of_it, of_other = (asking.enqueued(one, 0.0).seconds for one in (changed, jobs[1]))
    assert seconds_of(of_it) > seconds_of(of_other) - 2


def test_one_job_that_cannot_be_read_is_one_jobs_fault() -> None:
    whole = [(record(JobArrayID=str(n)), "(null)") for n in (7, 8)]
    odd = record(JobArrayID="9", NumCPUs="x", tres_alloc="cpu=4,mem=nan,gres/gpu=2")
    table = Table(Printed(*whole, (odd, "(null)"), ("10|RUNNING|1", "(null)")))
    read_alone, faulty = table.jobs()[:2], table.jobs()[2]
    assert read_alone == Table(Printed(*whole)).jobs()
    assert (faulty.id, faulty.fault) == (
        "9", "tres-alloc 'cpu=4,mem=nan,gres/gpu=2'; NumCPUs 'x'"
    )  # fmt: skip
    assert table.unread == ["squeue -O printed '10|RUNNING|1'"]


@pytest.mark.parametrize(
    "said", [{"NumNodes": "9" * 400}, {"tres-per-node": f"gres:gpu:{'9' * 4400}"}]
)
def test_a_number_of_hundreds_of_digits_is_one_records_fault(said: dict[str, str]) -> None:
    odd = record(JobArrayID="9", **said)
    table = Table(Printed((record(), "(null)"), (odd, "(null)")))
    assert [job.id for job in table.jobs()] == ["7"]
    assert len(table.unread) == 1
    assert table.unread[0].startswith("squeue -O printed '9|PENDING|")


def test_who_has_nodes_to_themselves_since_26_05_another_column_says() -> None:
    """OverSubscribe is NO of every job there."""
    for shares, exclusive, alone in (
        ("NO", "NO", False),
        ("NO", "NODE", True),
        ("YES", "NO", False),
    ):
        plain = record(OverSubscribe=shares).removesuffix("a") + f"n[1-2]|{exclusive}|a"
        assert jobs(plain, release=(26, 5))[0].exclusive is alone
    assert jobs(record(OverSubscribe="NO"), release=(24, 5))[0].exclusive


def test_where_a_job_must_not_run_is_asked_once_where_no_column_tells() -> None:
    ids = "7_[1-2]", "8", "9+0", "9+1"
    slurm = Printed(*((record(JobArrayID=one), "") for one in ids))
    slurm.out = {"7_[1-2]": "n[1-2]", "8": "", "9+1": "n3"}
    table, no = Table(slurm), ("n1", "n2")
    assert [job.exc_nodes for job in table.jobs()] == [no, no, (), (), ("n3",)]
    slurm.told.clear()
    slurm.records = [(record(JobArrayID=f"{n}", PriorityLong="9"), "") for n in range(7, 8 + FEW)]
    assert [job.exc_nodes for job in table.jobs()] == [no, *[()] * FEW]
    assert sorted(slurm.told) == ["10", "11", "12", "13", "14", "15", "9"]
    slurm.records += [(record(JobArrayID=f"{n}"), "") for n in range(100, 101 + FEW)]
    slurm.out["104"] = "n3"
    assert [job.id for job in table.jobs() if job.exc_nodes == ("n3",)] == ["104"]
    assert slurm.told[-1] == ""  # so many are read in one
    (job,) = jobs(record().removesuffix("a") + "n[1-2]|a", release=(24, 11))
    assert job.exc_nodes == no


@pytest.mark.parametrize(
    ("constraint", "known"),
    [
        *((one, True) for one in ("a", "a&b", "a,b", "a|b", "[a|b]", "a*2", "[a*1&b*12]", "x-1.2")),
        *((one, False) for one in ("[a*1&b]", "(a|b)&c", "[a&b]", "[a*1|b*2]", "a*1&b*1", "[a|b")),
    ],
)
def test_constraints_that_the_policy_does_not_know_are_told(constraint: str, known: bool) -> None:
    (job,) = jobs(record(), constraint)
    assert (job.odd == ()) is known


@given(st.sampled_from(COLUMNS[1:]), st.text(alphabet="0123456789,=:-[]()nax.~ ", max_size=12))
def test_whatever_is_odd_of_one_job_others_are_read_as_without_it(name: str, odd: str) -> None:
    whole = [(record(JobArrayID=str(n)), "(null)") for n in (7, 8)]
    said = {"JobArrayID": "9", name.replace("-", "_"): odd}
    table = Table(Printed(*whole, (record(**said), "(null)")))
    assert [job for job in table.jobs() if job.id != "9"] == Table(Printed(*whole)).jobs()


def test_gpus_that_are_in_use_on_a_node_are_those_of_its_jobs() -> None:
    """A kind of which some are free, or none, follows: a guess by order would have it otherwise."""
    said = (
        "NodeName=n1 State=MIXED CPUTot=8 RealMemory=9 Gres=gpu:v100:4,gpu:a100:2 "
        "GresUsed=gpu:v100:1(IDX:3),gpu:a100:2(IDX:4-5)\n"
        "NodeName=n2 State=MIXED CPUTot=8 RealMemory=9 Gres=gpu:v100:4 GresUsed=gpu:v100:2(IDX:0,2)"
    )
    n1, n2 = nodes = parse_nodes(said)
    assert (n1.used, n2.used) == ((3, 4, 5), (0, 2))
    assert n1 == replace(n1, used=())
    plain = SlurmJob("1", "RUNNING", "ada", "a", "main", 0.0, nodes=("n1",), gpus=1)
    typed = replace(plain, id="2", gpus=1, gpu_type="a100", gpu_types=(("a100", 1),))
    apart = replace(plain, id="3", gpus=3, nodes=("n1", "n2"))
    alike = replace(plain, id="4", gpus=2, nodes=("n1", "n2"), gpu_types=(("", 1),))
    each = replace(alike, gpus_per_node=True)
    waits = replace(plain, id="5", state="PENDING", nodes=())
    found = {job.id: job.held_gpus for job in on_gpus([plain, apart, typed, waits], nodes)}
    assert found == {"1": ((3,),), "2": ((4,),), "3": ((5,), (0, 2)), "5": ()}
    assert [job.held_gpus for job in on_gpus([each, typed], nodes)] == [((3,), (0,)), ((4,),)]
    assert on_gpus([alike], nodes)[0].held_gpus == (), "five are in use, and it has two"
    n3 = replace(n2, name="n3", used=(1,))
    chain = [apart, replace(apart, id="6", gpus=2, nodes=("n3", "n2"))]
    held_gpus = [job.held_gpus for job in on_gpus([plain, *chain, typed], [*nodes, n3])]
    assert held_gpus == [((3,),), ((5,), (0, 2)), (), ((4,),)], "n2 has two, and is asked for three"
    chain[0] = replace(apart, gpus=2)
    held_gpus = [job.held_gpus for job in on_gpus([plain, *chain, typed], [*nodes, n3])]
    assert held_gpus == [((3,),), ((5,), (0,)), ((1,), (2,)), ((4,),)]


def test_thousands_of_jobs_on_two_nodes_each_cost_no_more_than_thousands() -> None:
    nodes = [
        Node(
            name=f"n{i}",
            gpus=8,
            gpu_type="",
            partitions=("p",),
            open=True,
            state="MIXED",
            types=(("", 8),),
            used=(0,) if i in (0, 1999) else (0, 1),
        )
        for i in range(2000)
    ]
    one = SlurmJob("1", "RUNNING", "ann", "x", "p", submit=0.0, gpus=2, num_nodes=2)
    for many in (2000, 1999):  # in a ring, none of which is certain, and in a chain
        pairs = [(f"n{i}", f"n{(i + 1) % 2000}") for i in range(many)]
        running = [replace(one, id=f"{i}", nodes=pair) for i, pair in enumerate(pairs)]
        begun = thread_time()
        found = on_gpus(running, nodes)
        assert thread_time() - begun < 5.0, "as if each were compared with all others"
        assert any(job.held_gpus for job in found) == (many == 1999)


def test_memory_asked_for_is_not_a_partition_s_default_that_slurm_shows_meanwhile() -> None:
    """Slurm tries a job in each of its partitions, and shows what it tried last."""

    def of(memory: str) -> SlurmJob:
        counted = f"cpu=4,mem={memory},node=1,billing=4,gres/gpu=2"
        shown = {"NumNodes": "1", "tres_per_job": "gres/gpu:2", "tres_per_node": "N/A"}
        row = record(
            MinMemory="6000M", mem_per_tres="gpu:6000", tres_alloc=counted, cpus_per_tres="gpu:2",
            **shown,
        )  # fmt: skip
        (job,) = Table(Printed((row, ""))).jobs()
        return job

    def without(memory: str, least: str) -> tuple[float, str]:
        """Of a site that does not count GPUs, or of a job that names no memory itself."""
        shown = {"NumNodes": "1", "tres_per_job": "N/A", "tres_per_node": "gres:gpu:2"}
        row = record(
            MinMemory=least, mem_per_tres="gpu:6000", tres_alloc=f"cpu=4,mem={memory},node=1",
            **shown,
        )  # fmt: skip
        (job,) = Table(Printed((row, ""))).jobs()
        return job.least_mib, job.per

    assert without("12000M", "100M") == (6000, "gpu")
    assert without("125G", "0") == (6000, "gpu")  # a whole node is counted until it runs
    assert (of("20G").least_mib, of("20G").per) == (20 * 1024, "node")
    assert (of("12000M").least_mib, of("12000M").per) == (6000, "gpu")
