"""The `scontrol` that stays: one that says too much, or never ends, is given up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduler.slurm.read import client
from scheduler.slurm.read.client import Slurm, SlurmDown
from scheduler.slurm.read.site import read_site

ANSWERS = """while read -r line; do case "$line" in
    end-of-*|no*) echo "invalid keyword: $line" >&2;;
esac; done"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Slurm]]:
    """A Slurm whose `scontrol` is a script of the shell."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made: list[Slurm] = []

    def of(script: str) -> Slurm:
        command = tmp_path / "scontrol"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        made.append(Slurm())
        return made[-1]

    yield of
    for one in made:
        one.close()


def test_what_is_said_against_each_command_is_told_apart(
    slurm: Callable[[str], Slurm],
) -> None:
    there = slurm(ANSWERS)
    assert there.write(["update a", "nothing", "update b"]) == ["", "invalid keyword: nothing", ""]


@pytest.mark.parametrize(
    ("script", "patience_s"),
    [
        ('exec yes "error error" >&2', 1e5),  # as much as fits
        ("while :; do echo error >&2; sleep 0.01; done", 0.2),  # never silent for long
        ("exec sleep 100", 0.2),
    ],
)
def test_who_never_comes_to_an_end_is_given_up(
    slurm: Callable[[str], Slurm],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    patience_s: float,
) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", patience_s)
    there = slurm(script)
    with pytest.raises(SlurmDown, match="no answer"):
        there.write(["update a"])


def test_what_is_hidden_from_an_account_without_rights_is_read(
    slurm: Callable[[str], Slurm],
) -> None:
    there = slurm("""case "$*" in
        "-a show nodes"*) echo NodeName=n1 State=IDLE Gres=gpu:4 Partitions=secret;;
        "-a show partition"*) echo PartitionName=secret Nodes=n1 State=UP Hidden=YES;;
        "-a show job"*) echo JobId=5 Partition=secret;;
    esac""")
    (node,) = nodes = there.nodes()
    assert node.partitions == ("secret",)
    assert list(read_site(there, nodes).partitions) == ["secret"]
    assert "secret" in there.detail("5")
