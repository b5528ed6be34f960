"""Every adapter against the one contract."""

import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.commands.ingest import HELP
from pipeline.testing import AdapterConformance, Sample
from pipeline.traces import FORMATS
from tests.pipeline.traces.samples import WRITERS


class Conformance(AdapterConformance):
    def written(self, folder: Path, jobs: Sequence[Sample]) -> Path:
        return WRITERS[self.format](folder, jobs)


class TestHelios(Conformance):
    format = "helios"


class TestHeliosFull(Conformance):
    format = "helios-full"
    starts = False


class TestPhilly(Conformance):
    format = "philly"
    recorded = False
    counts = False


class TestPhillyFlat(Conformance):
    format = "philly-csv"
    ids = starts = False


class TestPai(Conformance):
    format = "pai2020"
    recorded = clock = False
    reasons = {"NaN": "no_gpu", "-2": "task_refused", "inf": "task_refused"}  # noqa: RUF012


class TestOpenb(Conformance):
    format = "openb"
    recorded = clock = False


class TestSpot(Conformance):
    format = "spot2026"
    starts = clock = False


class TestAcme(Conformance):
    format = "acme"


class TestSwf(Conformance):
    format = "swf"
    ends = False
    delimiters = (b" ", b",")
    clock = False


class TestSacct(Conformance):
    format = "sacct"
    reasons = dict.fromkeys(("NaN", "-2", "inf"), "bad_alloc_tres")


ELSEWHERE = {"pellucid"}  # what a service exports: tests/scheduler/service/log/test_export.py


def test_every_format_is_held_to_the_contract() -> None:
    held = {kind.format for kind in Conformance.__subclasses__()}
    assert held == FORMATS.keys() - ELSEWHERE, "a subclass of Conformance for each, in this file"


def test_every_format_is_in_the_documents() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "trace-formats.md").read_text()
    rows = re.findall(r"^\| `([a-z][\w-]*)` \| ", page.partition("## The schema")[0], re.MULTILINE)
    assert set(rows) == FORMATS.keys(), "docs/trace-formats.md: a row for each"
    lacking = [name for name in FORMATS if not re.search(rf"[ (]{name}[ ,]", HELP)]
    assert lacking == [], "HELP in pipeline/commands/ingest.py names each"
