"""The databases of the service's tests, for those of a service in front of Slurm."""

from tests.scheduler.service.conftest import bundles, database, store, tables

__all__ = ["bundles", "database", "store", "tables"]
