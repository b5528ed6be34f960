"""The reference of reasons is complete, and the page is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.core.decisions import Reason
from scheduler.explain.reasons import ENTRIES, WAIT, markdown

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reasons.md"
# what KEP-10852 of Kueue names, and the reasons of `squeue` that are used
KUEUE = {
    "Deactivated", "Suspended", "Misconfigured", "NoMatchingFlavor", "ExceedsMaxQuota",
    "AdmissionGated", "WaitingForQuota", "TopologyPlacementFailed", "PreemptionPending",
    "PendingEvaluation", "Preempted",
}  # fmt: skip


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_an_entry(reason: Reason) -> None:
    assert reason in ENTRIES, f"{reason.value}: say in scheduler/explain/reasons.py what it implies"
    entry = ENTRIES[reason]
    assert entry.implies.endswith(".")
    assert entry.kueue in {"", *KUEUE}
    assert f"### {reason.value}\n" in markdown()


def test_those_who_wait_are_told_the_nearest_of_what_they_know() -> None:
    waits = [reason for reason, entry in ENTRIES.items() if entry.kind == WAIT]
    named = [reason for reason in waits if ENTRIES[reason].slurm and ENTRIES[reason].kueue]
    assert len(named) >= len(waits) - 2  # profiling and faster GPUs are ours alone


def test_the_page_is_as_it_would_be_written() -> None:
    wanted = "python -m scheduler.explain.reasons > docs/reasons.md"
    assert PAGE.read_text() == markdown(), wanted
