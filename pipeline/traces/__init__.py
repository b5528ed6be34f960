"""Adapters that read traces (records of past jobs): one per public trace format, all yielding the
same trace schema.

See ``docs/trace-formats.md`` for the formats, and ``base.Adapter`` for the rules that an adapter
keeps.
"""

from pipeline.traces.base import Adapter, Batch, Options, Reject, TraceError
from pipeline.traces.dataset import read_dataset
from pipeline.traces.ingestion import IngestSummary, ingest, jobs_in_order
from pipeline.traces.registry import ADAPTERS, FORMATS, adapter_for

__all__ = [
    "ADAPTERS",
    "FORMATS",
    "Adapter",
    "Batch",
    "IngestSummary",
    "Options",
    "Reject",
    "TraceError",
    "adapter_for",
    "ingest",
    "jobs_in_order",
    "read_dataset",
]
