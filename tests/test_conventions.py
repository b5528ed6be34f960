"""What holds for all tests and all of the source, whatever they are about."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("features", "models", "profiler", "scheduler", "pipeline")


def test_no_property_test_has_a_deadline() -> None:
    """One profile for all; nobody asks for a time of his own."""
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    asked = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for folder in ("tests", *PACKAGES)
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in ("settings", "TestCase")
        and any(word.arg == "deadline" and _is_a_time(word.value) for word in node.keywords)
    ]
    assert asked == []


def _is_a_time(node: ast.expr) -> bool:
    return not (isinstance(node, ast.Constant) and node.value is None)


REPLACED = """
    Breach BundleJudge Course Door Fate Forecast Freedom Gate Genesis GenesisError Ground Judge
    Late Library Nature News Past Picture Probation Prompt RecentForecast Sight Snapshot Snapshots
    TableForecast TableJudge Verdict
"""


def test_private_words_do_not_come_back() -> None:
    """Names of classes that gave way to those of the field; `docs/glossary.md` has those."""
    assert not set(REPLACED.split()) & _classes().keys()


def test_the_glossary_names_what_there_is() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    quoted = set(re.findall(r"`([^`]+)`", page))
    classes = {word for word in quoted if re.fullmatch(r"[A-Z][a-z]+([A-Z]\w+)*", word)}
    assert classes
    assert classes <= _classes().keys()
    paths = {word for word in quoted if re.fullmatch(r"[a-z_]+/[\w/.]*", word)}
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    links = set(re.findall(r"\]\(([\w.-]+)\)", page))
    assert [link for link in sorted(links) if not (ROOT / "docs" / link).exists()] == []


def _classes() -> dict[str, str]:
    """Every class of the packages, and the file that has it."""
    return {
        node.name: str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    }


def test_pages_and_reasons_use_an_administrators_words() -> None:
    """Jobs are profiled, evaluated and forecast, not looked at; readers are shown, not told."""
    private = re.compile(r"\b(looked at|look at|told|nobody|everybody|whoever)\b", re.IGNORECASE)
    code = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<script.*?</script>", re.DOTALL)
    texts = {
        str(file.relative_to(ROOT)): code.sub("", file.read_text())
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.html")
    }
    assert len(texts) > 10
    texts |= {"docs/reasons.md": (ROOT / "docs" / "reasons.md").read_text()}
    assert {name: found for name, text in texts.items() if (found := private.findall(text))} == {}
