from __future__ import annotations

from pathlib import Path

from features.state import FAMILIES, features_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "features.md"


def test_the_page_lists_every_feature_as_it_is() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{spec.name}` | {spec.kind} | {spec.unit} | {spec.text} |"
        for spec in features_of(FAMILIES)
    ]
