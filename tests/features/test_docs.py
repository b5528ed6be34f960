from __future__ import annotations

import re

from features.state import FAMILIES, features_of
from tests.docs.walk import DOCS, built


def test_the_page_has_every_family_once() -> None:
    marks = re.findall(r"^<!-- features: (.+) -->$", (DOCS / "features.md").read_text(), re.M)
    assert sorted(" ".join(marks).split()) == sorted(FAMILIES)


def test_the_built_page_has_every_feature() -> None:
    page = built("features.md")
    names = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    keys = ("user_gpus", "user", "template", "vc")
    found = names | {name.replace("KEY", key) for name in names for key in keys}
    assert {spec.name for spec in features_of(FAMILIES)} <= found
    assert "<!--" not in page
