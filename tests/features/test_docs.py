from __future__ import annotations

from pathlib import Path

from features.spec import FeatureSpec
from features.state import FAMILIES, features_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "features.md"
KEYS = {
    "user_gpus": "this user with this many GPUs",
    "user": "this user",
    "template": "this template",
    "vc": "this VC",
}


def row(spec: FeatureSpec) -> str:
    """The row of a feature; those of a key stand once for all keys, with KEY for its name."""
    name, text = spec.name, spec.text
    if spec.family in (*KEYS, "running"):
        key = next(key for key in KEYS if name.startswith(f"{key}_"))
        name, text = name.replace(key, "KEY", 1), text.replace(KEYS[key], "this KEY")
    return f"| `{name}` | {spec.kind} | {spec.unit} | {text} |"


def test_the_page_lists_every_feature_as_it_is() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows == list(dict.fromkeys(map(row, features_of(FAMILIES))))
