"""torch, where it is installed."""

from tests.profiler.conftest import torch

__all__ = ["torch"]
