"""Gavel (OSDI'20): policies for several GPU types, as optimisation problems, and their rounds."""

from reproductions.gavel.policies import POLICIES

__all__ = ["POLICIES"]
