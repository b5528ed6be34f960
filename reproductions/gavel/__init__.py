"""Gavel (OSDI'20): policies for several GPU types, as optimisation problems, and rounds that turn
their shares of time into allocations.
"""

from reproductions.gavel.policies import POLICIES

__all__ = ["POLICIES"]
