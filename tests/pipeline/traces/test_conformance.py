"""Every adapter against the one contract."""

from tests.pipeline.traces.conformance import AdapterConformance


class TestHelios(AdapterConformance):
    format = "helios"


class TestHeliosFull(AdapterConformance):
    format = "helios-full"
    starts = False


class TestPhilly(AdapterConformance):
    format = "philly"
    recorded = False
    counts = False


class TestPhillyFlat(AdapterConformance):
    format = "philly-csv"
    ids = starts = False


class TestPai(AdapterConformance):
    format = "pai2020"
    recorded = clock = False
    reasons = {"NaN": "no_gpu", "-2": "task_refused", "inf": "task_refused"}  # noqa: RUF012


class TestOpenb(AdapterConformance):
    format = "openb"
    recorded = clock = False


class TestSpot(AdapterConformance):
    format = "spot2026"
    starts = clock = False


class TestAcme(AdapterConformance):
    format = "acme"


class TestSwf(AdapterConformance):
    format = "swf"
    clock = False


class TestSacct(AdapterConformance):
    format = "sacct"
    reasons = dict.fromkeys(("NaN", "-2", "inf"), "bad_alloc_tres")
