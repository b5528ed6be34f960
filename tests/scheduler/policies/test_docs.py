"""`docs/policy.md`, as `make docs` builds it, lists every policy and every setting."""

from __future__ import annotations

import re

import pytest

from scheduler.core.settings import accepted_by, describe
from scheduler.policies import POLICIES
from tests.docs.walk import DOCS, built

PAGE = DOCS / "policy.md"


def test_the_page_has_the_settings_of_every_policy() -> None:
    marks = re.findall(r"^<!-- settings: (\S+) -->$", PAGE.read_text(), re.MULTILINE)
    having = {name for name, kind in POLICIES.items() if describe(accepted_by(kind))}
    assert len(marks) == len({*marks})
    assert {*marks} == having, (
        "docs/policy.md: a line <!-- settings: NAME --> for each policy that has settings; "
        f"wrong: {sorted({*marks} ^ having)}"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_the_built_page_describes_every_setting(policy: str) -> None:
    page = built("policy.md")
    for one in describe(accepted_by(POLICIES[policy])):
        assert f"`{one.name}`" in page, f"<!-- settings: {policy} --> in docs/policy.md"
        assert one.description in page


def test_the_page_of_the_policy_lists_every_policy() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("- `")]
    listed = re.findall(r"`([a-z-]+)`", "\n".join(line.partition(": ")[0] for line in lines))
    listed += re.findall(r"; `([a-z-]+)`: ", "\n".join(lines))
    assert sorted(listed) == sorted(POLICIES.keys() - {"pellucid"}), (
        "docs/policy.md: a line `NAME`: what it does, for each policy"
    )
