"""What the service's processes have in common, loaded once in the server they are forked from.

Forked after this, they share the memory it takes. `gc.freeze` keeps the collector from writing
into those pages, which would copy them.
"""

from __future__ import annotations

import gc
import signal
from importlib import import_module

COMMON = (
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "scheduler.service.supervisor",
    "scheduler.service.analyst.process",
    "scheduler.service.api.app",
    "scheduler.service.pages.routes",
    "scheduler.backends.simulated",
)

# A signal to the whole group is for the processes that end in order. Were this server gone before
# them, the supervisor, who hears of their ends through it, would take them for dead.
signal.signal(signal.SIGTERM, signal.SIG_IGN)

for name in COMMON:
    import_module(name)
gc.collect()
gc.freeze()
