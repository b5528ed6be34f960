"""The fixtures of the profiler's tests."""

from tests.profiler.conftest import fake, torch

__all__ = ["fake", "torch"]
