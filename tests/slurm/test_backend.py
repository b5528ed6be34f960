"""The Slurm backend keeps the contract on real daemons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.slurm import SlurmCluster
from scheduler.testing.backend import BackendContract, Site
from tests.slurm.site import SlurmSite


@pytest.fixture
def site(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmSite]:
    tmp_path.chmod(0o755)
    site = SlurmSite(cluster, tmp_path)
    yield site
    site.close()


class TestSlurm(BackendContract):
    seeds = 1

    @pytest.fixture
    def site(self, site: SlurmSite) -> Site:
        return site
