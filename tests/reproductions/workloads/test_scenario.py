"""What a workload must offer before a policy is run on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproductions.allocation.core import UnmetNeeds
from reproductions.workloads import open_workload
from reproductions.workloads.scenario import AllocationScenario


@pytest.mark.shared_data
def test_policies_that_choose_no_gpu_type_need_a_cluster_of_one(shared_data: Path) -> None:
    workload = open_workload(f"gavel:{shared_data / 'gavel/minimize_makespan.trace'}")
    scenario = AllocationScenario(workload)
    with pytest.raises(UnmetNeeds, match="one type; this workload has k80, p100, v100"):
        scenario.check("tiresias-las")
    names = AllocationScenario(workload).runnable()
    assert names
    assert all(name.startswith("gavel-") for name in names)
