"""The decision core on the wall clock: event log, decider, API, pages (docs/service.md)."""
