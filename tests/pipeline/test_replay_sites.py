"""Replays of made-up sites whose batch system shares no code with the policy `slurm`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.sites import SITES, hosts, write
from pipeline.app import app
from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.replay.causes import CAPACITY, DEPENDENCY, HOLD, LIMIT, NODES, cause_of
from pipeline.replay.extra import COLUMNS
from pipeline.replay.figures import COUNTED_IN, FIT_MEAN, Figures, doubts, misfit
from pipeline.replay.printed import read_printed
from pipeline.replay.runs import VARIANTS, Cell, cell, replay
from pipeline.replay.site import DumpOptions, Site, read_site
from pipeline.worlds.inferred import Ran, nodes_of

BASES = [variant for variant in VARIANTS if variant.key in ("slurm", "easy")]
SLURM = BASES[0]


@cache
def made_up(name: str) -> tuple[str, str]:
    """A site's dump and what its Slurm prints of itself."""
    with TemporaryDirectory() as folder:
        dump, printed = write(name, Path(folder))
        return dump.read_text(), printed.read_text()


def written(name: str, folder: Path) -> tuple[Path, Path]:
    """Files of both."""
    dump, printed = folder / "dump.txt", folder / "site.txt"
    for path, text in zip((dump, printed), made_up(name), strict=True):
        path.write_text(text)
    return dump, printed


def site_of(name: str, folder: Path, *, given: bool = True, anonymise: bool = False) -> Site:
    dump, printed = written(name, folder)
    options = DumpOptions(printed=[printed] if given else [], anonymise=anonymise)
    return read_site(dump, folder / "scratch", options)


@pytest.mark.parametrize("given", [True, False], ids=["listed", "inferred"])
@pytest.mark.parametrize("name", SITES)
def test_no_gpu_is_invented_and_none_lost(name: str, given: bool, tmp_path: Path) -> None:
    site = site_of(name, tmp_path, given=given)
    assert site.workload.cluster.gpus == sum(host.gpus for host in hosts(SITES[name]))
    assert site.counts["replayed"] == SITES[name].jobs
    twin = site.twin
    assert twin is not None
    assert twin.spec.gpus == site.workload.cluster.gpus


@pytest.mark.parametrize("name", ["small", "limited"])
def test_slurms_own_schedule_is_found_again_where_the_site_is_known(
    name: str, tmp_path: Path
) -> None:
    """Where limits count and names are hidden, too."""
    site = site_of(name, tmp_path, anonymise=name == "limited")
    assert site.twin is not None
    held = repr((site.twin.site.assocs, site.twin.site.qos, list(site.twin.asks.values())[:50]))
    for hidden in ("user0", "lab", "normal", "'gpu'"):
        assert name == "small" or hidden not in held
    told = cell(site, Cell(SLURM))
    assert told is not None
    test = told["backtest"]
    assert test["unfinished"] == 0
    assert test["rank_correlation"] >= 0.9
    assert test["avg_wait_replayed_s"] == pytest.approx(test["avg_wait_recorded_s"], rel=FIT_MEAN)
    assert not misfit(test)


def test_without_its_settings_a_site_with_limits_is_told_no_saving(tmp_path: Path) -> None:
    site = site_of("limited", tmp_path, given=False)
    found = replay(site, 1, variants=BASES)
    assert found["misfit"]
    assert not any("saved_hours" in variant for variant in found["variants"])
    assert any("--site" in note for note in site.notes)


def variant_of(found: Figures, key: str) -> Figures:
    (only,) = (one for one in found["variants"] if one["key"] == key)
    assert isinstance(only, dict)
    return only


def test_waits_on_limits_are_set_apart_and_are_nobodys_to_save(tmp_path: Path) -> None:
    site = site_of("limited", tmp_path)
    limited = np.array(site.submitted["cause"]) == LIMIT
    assert 0 < limited.sum() < len(limited)
    found = replay(site, 1, variants=BASES)
    rows = {row["cause"]: row for row in found["apart"]}
    assert rows[LIMIT]["jobs"] == limited.sum()
    assert found["recorded"]["jobs"] == rows[CAPACITY]["jobs"] == (~limited).sum()
    # Slurm's own schedule knows the limit, and is checked on those jobs too
    assert {row["name"] for row in found["backtest"]["by_cause"]} == {LIMIT, CAPACITY}
    assert found["backtests"]["easy"]["jobs"] == rows[CAPACITY]["jobs"]
    # the replay that savings are counted in has to fit as well: without what the others waited for
    # in the queue, these wait less than they did
    assert not misfit(found["backtest"])
    counted = found["counted"]
    assert counted["jobs"] == rows[CAPACITY]["jobs"]
    assert counted["avg_wait_replayed_s"] == variant_of(found, "slurm")["avg_wait_s"]
    assert counted["avg_wait_replayed_s"] < 0.85 * counted["avg_wait_recorded_s"]
    assert found["misfit"] == [COUNTED_IN, *misfit(counted)]
    assert not any("saved_hours" in variant for variant in found["variants"])


def test_savings_are_stated_where_both_replays_fit() -> None:
    near, far = fit(100.0, 101.0, 0.9), fit(100.0, 200.0, 0.9)
    assert doubts({"backtest": near}) == doubts({"backtest": near, "counted": near}) == []
    assert doubts({"backtest": far, "counted": near}) == misfit(far)
    assert doubts({"backtest": near, "counted": far}) == [COUNTED_IN, *misfit(far)]
    assert doubts(None) == misfit(None)


def test_the_command_puts_the_check_first_and_states_no_saving_it_cannot(tmp_path: Path) -> None:
    dump, printed = written("small", tmp_path)
    options = ["replay", "--sacct", str(dump), "--seeds", "1", "--out", str(tmp_path / "page.html")]
    told = CliRunner().invoke(app, [*options, "--site", str(printed)])
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines()[0].startswith("Slurm's own schedule, replayed: average wait")
    page = (tmp_path / "page.html").read_text()
    assert page.index("Can the replay be trusted?") < page.index("What each policy would have done")
    wrong = tmp_path / "wrong.txt"  # nodes twice as large as they were
    wrong.write_text(made_up("small")[1].replace("a100:8", "a100:16"))
    told = CliRunner().invoke(app, [*options, "--site", str(wrong)])
    assert told.exit_code == 0, told.output
    assert "Partition big is left out: its jobs waited" in told.stdout
    assert "Doubtful: The schedule replayed" in told.stdout
    page = " ".join((tmp_path / "page.html").read_text().split())
    assert "partition big" in page
    assert "nothing is stated: its jobs waited" in page


def test_only_what_was_not_given_is_asked_for(tmp_path: Path) -> None:
    dump, printed = written("small", tmp_path)
    header, *lines = dump.read_text().splitlines()
    whole = tmp_path / "whole.txt"
    absent = [name for name in COLUMNS if name not in header.split("|")]
    whole.write_text(
        "\n".join(["|".join([header, *absent]), *(line + "|" * len(absent) for line in lines)])
    )
    assert read_site(whole, tmp_path / "1", DumpOptions(printed=[printed])).nearer == []
    assert read_site(whole, tmp_path / "2").nearer == ["the site's nodes and settings (--site)"]
    fewer = tmp_path / "fewer.txt"
    fewer.write_text(whole.read_text().replace("Reason", "Comment", 1))
    (said,) = read_site(fewer, tmp_path / "3", DumpOptions(printed=[printed])).nearer
    assert said.startswith("a dump with Reason, too")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("None", CAPACITY),
        ("", CAPACITY),
        ("Resources", CAPACITY),
        ("Priority", CAPACITY),
        ("QOSMaxGRESPerUser", LIMIT),
        ("Licenses", LIMIT),
        ("JobArrayTaskLimit", LIMIT),
        ("PartitionTimeLimit", LIMIT),
        ("Dependency", DEPENDENCY),
        ("JobHeldUser", HOLD),
        ("BeginTime", HOLD),
        ("ReqNodeNotAvail, UnavailableNodes:n1", NODES),
        ("Reservation", NODES),
        ("SomethingNew", HOLD),
    ],
)
def test_reasons_are_told_apart(reason: str, cause: str) -> None:
    assert cause_of(reason) == cause


def test_a_wait_counted_from_when_a_job_was_eligible_is_one_for_capacity() -> None:
    assert cause_of("Dependency", eligible_later=True) == CAPACITY
    assert cause_of("QOSMaxGRESPerUser", eligible_later=True) == LIMIT


def fit(was: float, now: float, rank: float | None) -> Figures:
    return {
        "jobs": 9,
        "avg_wait_recorded_s": was,
        "avg_wait_replayed_s": now,
        "rank_correlation": rank,
    }


@pytest.mark.parametrize(
    ("was", "now", "rank", "reasons"),
    [
        (1000, 1100, 0.9, 0),
        (1000, 1160, 0.9, 1),
        (1000, 1000, 0.5, 1),
        (1000, 100, 0.5, 2),
        (21.9, 10.1, 0.57, 2),  # short waits, and others than were recorded
        (10, 10, 0.56, 1),
        (0.2, 0.9, 0.0, 0),  # nobody waited worth the name
        (1000, 1000, None, 0),
    ],
)
def test_savings_need_a_fit(was: float, now: float, rank: float | None, reasons: int) -> None:
    assert len(misfit(fit(was, now, rank))) == reasons
    assert misfit(None)


def test_nodes_are_sized_by_what_ran_on_each() -> None:
    def ran(node: str, gpus: int, *, kind: str = "a100", at: float = 0, more: str = "") -> Ran:
        return Ran("gpu", tuple(filter(None, (node, more))), at, at + 10, {kind: gpus})

    found = nodes_of(
        [
            *(ran(f"n{i}", 8) for i in range(1, 13)),
            *(ran(f"s{i}", 2) for i in range(1, 5)),
            ran("n13", 5),  # never full: as its likes
            ran("s5", 1, at=0),
            ran("s5", 1, at=10),  # one after the other
            ran("m1", 8, more="m2", kind="h100"),  # four on each
            ran("x1", 2, kind="t4"),
            ran("x1", 1, kind="2080ti"),
        ]
    )
    sizes = {name: sum(node.gpus.values()) for name, node in found.items()}
    assert sizes["n13"] == 8
    assert sizes["s5"] == 2
    assert sizes["m1"] == sizes["m2"] == 4
    assert found["x1"].gpus == {"t4": 2, "2080ti": 1}
    assert sum(sizes.values()) == 13 * 8 + 5 * 2 + 8 + 3


def test_what_slurm_prints_is_told_by_what_it_is(tmp_path: Path) -> None:
    text = made_up("limited")[1]
    whole, parts = tmp_path / "site.txt", [tmp_path / name for name in ("a", "b")]
    whole.write_text(text)
    nodes, rest = text.split("PartitionName=", 1)
    parts[0].write_text(nodes)
    parts[1].write_text("PartitionName=" + rest)
    assert read_printed([whole]) == read_printed(parts)
    found = read_printed([whole])
    assert len(found.nodes) == 12
    assert found.config["PriorityType"] == "priority/multifactor"
    assert found.qos["normal"].limits.max_tres_pu == {"gres/gpu": 12.0}
    assert found.assocs["lab", "user03"].parent == ""
    assert found.assocs["lab", ""].parent == "root"
    nothing = tmp_path / "nothing.txt"
    nothing.write_text("hello\n")
    with pytest.raises(UserError, match="nothing of Slurm's"), user_errors():
        read_printed([nothing])
    with pytest.raises(UserError, match="No such file"), user_errors():
        read_printed([tmp_path / "none"])


def test_a_dump_in_which_nobody_waited_for_gpus_is_refused_in_a_line(tmp_path: Path) -> None:
    """It was replayed, and ended with a traceback."""
    head, *rows = made_up("small")[0].splitlines()
    place = head.split("|").index("Reason")
    held = [row.split("|") for row in rows]
    held = [[*row[:place], "Dependency", *row[place + 1 :]] for row in held]
    dump = tmp_path / "dump.txt"
    dump.write_text("\n".join([head, *map("|".join, held)]) + "\n")
    with pytest.raises(UserError, match="something other than GPUs or its turn"):
        read_site(dump, tmp_path / "scratch")


def test_digits_that_are_no_numbers_end_no_replay(tmp_path: Path) -> None:
    dump, printed = written("small", tmp_path)
    head, *rows = dump.read_text().splitlines()[:40]
    cells = [row.split("|") for row in rows]
    for column in ("JobID", "Priority"):
        for row in cells:
            row[head.split("|").index(column)] += "\N{SUPERSCRIPT TWO}"
    dump.write_text("\n".join([head, *map("|".join, cells)]) + "\n")
    site = read_site(dump, tmp_path / "scratch", DumpOptions(printed=[printed]))
    assert cell(site, Cell(SLURM))
