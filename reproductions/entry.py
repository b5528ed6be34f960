"""The names that `pipeline.systems` loads dynamically; no module imports this one."""

from reproductions.registry import ALLOCATING, peer_named
from reproductions.workloads.scenario import open_scenario

__all__ = ["ALLOCATING", "open_scenario", "peer_named"]
