"""The GPU nodes of Alibaba's cluster of 2023 ("openb"): 1,213 nodes, seven types of GPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pipeline.worlds.venus import TrackError, read_rows
from scheduler.core.cluster import ClusterSpec, NodeGroup

NODES = "openb_node_list_gpu_node.csv"


def cluster(folder: Path, vc: str = "openb") -> ClusterSpec:
    """Return the nodes as one virtual cluster named `vc`, in groups of equal nodes, the largest
    groups first.

    Raises TrackError when the file is missing or malformed.
    """
    try:
        found = Counter((row["model"], int(row["gpu"])) for row in read_rows(folder / NODES))
    except (KeyError, ValueError) as error:
        raise TrackError(f"{folder / NODES}: {error!r} is missing or no number") from None
    groups = [
        NodeGroup(gpu_type, nodes, gpus)
        for (gpu_type, gpus), nodes in sorted(found.items(), key=lambda item: (-item[1], item[0]))
        if gpus
    ]
    return ClusterSpec.mixed({vc: groups}, name="openb")
