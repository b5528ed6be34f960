"""What the service's processes have in common, loaded once in the server they are forked from.

Forked after this, they share the memory it takes. `gc.freeze` keeps the collector from writing
into those pages, which would copy them.
"""

from __future__ import annotations

import gc
from importlib import import_module

COMMON = (
    "uvicorn.protocols.http.h11_impl",
    "scheduler.service.supervisor",
    "scheduler.service.analyst.process",
    "scheduler.service.api.app",
    "scheduler.service.pages.routes",
    "scheduler.backends.simulated",
)

for name in COMMON:
    import_module(name)
gc.collect()
gc.freeze()
