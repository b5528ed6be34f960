"""The databases of the service's tests, for those of a service in front of Slurm."""

from tests.scheduler.service.conftest import bundles, database, postgresql, store, tables

__all__ = ["bundles", "database", "postgresql", "store", "tables"]
