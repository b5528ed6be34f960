"""`docs/policy.md` lists every setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scheduler.core.settings import describe
from scheduler.policies import POLICIES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "policy.md"


def table_of(policy: str) -> list[str]:
    """Its settings as they stand in `docs/policy.md`."""
    return [
        f"| {(one.section and '**') or ''}`{one.name}`{(one.section and '**') or ''} "
        f"| `{one.written}` | {one.unit} | {one.accepts} | {one.description} |"
        for one in describe(POLICIES[policy].Settings)
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_page_of_the_policy_lists_every_setting(policy: str) -> None:
    page = PAGE.read_text()
    for line in table_of(policy):
        assert line in page.splitlines(), f"add to docs/policy.md, settings of {policy}: {line}"


def test_the_page_of_the_policy_lists_every_policy() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("- `")]
    listed = re.findall(r"`([a-z-]+)`", "\n".join(line.partition(": ")[0] for line in lines))
    listed += re.findall(r"; `([a-z-]+)`: ", "\n".join(lines))
    assert sorted(listed) == sorted(POLICIES.keys() - {"pellucid"})


def test_the_page_of_the_policy_lists_no_setting_that_is_none() -> None:
    page = PAGE.read_text()
    listed = re.findall(r"^\| \**`([\w.]+)`\** \| `[^`]+` \| [^|]*\| [^|]*\|", page, re.MULTILINE)
    known = {one.name for kind in POLICIES.values() for one in describe(kind.Settings)}
    assert set(listed) == known
