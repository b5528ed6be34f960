"""Parameter assignment of Optimus (EuroSys'18): which server holds which block of a model.

A parameter server that holds more of the model, or serves more requests, than the others holds
every worker up. The paper's algorithm evens out both; the default of MXNet is what it replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

# Blocks up to this share of an average server's load are placed by requests, not by size.
SMALL = 0.01
# MXNet splits blocks of at least this many parameters over all servers ...
MXNET_SPLITS = 1_000_000
# ... and hashes the others by their number.
MXNET_FACTOR = 9973


@dataclass(frozen=True, slots=True)
class ServerLoads:
    """Parameters and requests (pieces) per server."""

    parameters: tuple[int, ...]
    requests: tuple[int, ...]

    @property
    def gap(self) -> int:
        """Parameters of the fullest server less those of the emptiest."""
        return max(self.parameters) - min(self.parameters)

    @property
    def share(self) -> float:
        """Share of the model on the fullest server."""
        return max(self.parameters) / sum(self.parameters)


class _Servers:
    def __init__(self, count: int):
        if count < 1:
            raise ValueError(f"{count} parameter servers: at least one is needed")
        self.load = [0] * count
        self.requests = [0] * count

    def put(self, server: int, size: int) -> None:
        self.load[server] += size
        self.requests[server] += 1

    def emptiest(self) -> int:
        return min(range(len(self.load)), key=lambda s: self.load[s])

    def best_fit(self, size: int, limit: int) -> int:
        """The fullest server that still has room below `limit`, else the emptiest."""
        rooms = [(limit - load, s) for s, load in enumerate(self.load) if limit - load >= size]
        return min(rooms)[1] if rooms else self.emptiest()

    def loads(self) -> ServerLoads:
        return ServerLoads(tuple(self.load), tuple(self.requests))


def assign(blocks: Sequence[int], servers: int) -> ServerLoads:
    """Optimus' assignment of parameter blocks (their sizes) to servers.

    Largest first. A block of at most 1 % of an average server goes where the fewest requests go;
    one that fits an average server goes where it fits best; a larger one is cut: each piece
    fills the emptiest server to the average, what is left over is placed like a block.
    """
    chosen = _Servers(servers)
    average = ceil(sum(blocks) / servers)
    small = SMALL * sum(blocks) / servers
    for block in sorted(blocks, reverse=True):
        size = block
        while size > average and chosen.load[chosen.emptiest()] < average:
            server = chosen.emptiest()
            piece = average - chosen.load[server]
            chosen.put(server, piece)
            size -= piece
        if block <= small:
            requests = chosen.requests
            chosen.put(min(range(servers), key=lambda s: requests[s]), size)
        elif size:
            chosen.put(chosen.best_fit(size, average), size)
    return chosen.loads()


def assign_as_mxnet(blocks: Sequence[int], servers: int) -> ServerLoads:
    """The default of MXNet: large blocks split over all servers, small ones hashed by number."""
    chosen = _Servers(servers)
    for key, block in enumerate(blocks):
        if block < MXNET_SPLITS:
            chosen.put(key * MXNET_FACTOR % servers, block)
        else:
            cuts = [block * s // servers for s in range(servers + 1)]
            for server in range(servers):
                chosen.put(server, cuts[server + 1] - cuts[server])
    return chosen.loads()
