"""Log lines of the service: one per event, on standard error, as JSON when that is not a terminal.

Names of events are constant; what varies is in fields. `cause` is the `seq` of the event in the
event log that led to the line; `job` and `attempt` name what the line is about.
"""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor


def configure(level: str) -> None:
    """Set up structlog, and the standard library's logging with it, for lines of `level` ("info")
    and above.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    plain = sys.stderr.isatty()
    renderer: Processor = (
        structlog.dev.ConsoleRenderer() if plain else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.processors.format_exc_info],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("alembic").setLevel(logging.WARNING)
