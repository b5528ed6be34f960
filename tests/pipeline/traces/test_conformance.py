"""Every adapter against the one contract."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.testing import AdapterConformance, Sample
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
