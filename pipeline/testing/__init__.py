"""Tests that every trace adapter must pass, as a class to subclass.

    from pipeline.testing import AdapterConformance

    class TestMine(AdapterConformance):
        format = "mypackage.mine:Mine"

        def written(self, folder, jobs):
            ...

Needs pytest and Hypothesis, which the installed product does not.
"""

try:
    import hypothesis  # noqa: F401
    import pytest
except ImportError as error:
    raise ImportError(
        f"pipeline.testing needs pytest and hypothesis ({error.name} is not installed): "
        "pip install pytest hypothesis"
    ) from error

pytest.register_assert_rewrite("pipeline.testing.adapter")

from pipeline.testing.adapter import AdapterConformance, check_table
from pipeline.testing.samples import Sample, clock, rows, samples

__all__ = ["AdapterConformance", "Sample", "check_table", "clock", "rows", "samples"]
