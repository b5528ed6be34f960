"""Reading a cluster as a person writes it down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from pipeline.worlds.scenario import ProfilingSettings
from pipeline.worlds.venus import TrackError
from scheduler.core.cluster import ClusterSpec
from scheduler.core.profiling import KNOWN_S, Scaling


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProfilingFile(_Strict):
    """The profiling partition: `nodes` nodes, one each from the virtual clusters named."""

    nodes: int = Field(0, ge=0)
    lend_from: list[str] = []
    scale_from: str | None = None
    limit_s: float = Field(200.0, gt=0)
    max_gpus: PositiveInt = 8
    known_s: float = Field(KNOWN_S, ge=0)  # 0: every job is looked at


class ClusterFile(_Strict):
    """A cluster, as a person writes it down (YAML)."""

    name: str = "cluster"
    gpus_per_node: PositiveInt = 8
    gpu_type: str = ""
    gpu_memory_mib: float = Field(24_576.0, gt=0)
    vcs: dict[str, Annotated[int, Field(ge=1, le=100_000)]] = Field(min_length=1)
    profiling: ProfilingFile | None = None


def read_cluster(path: Path) -> tuple[ClusterSpec, ProfilingSettings]:
    """A cluster file. TrackError names the field, the value and what is accepted."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise TrackError(f"cluster {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TrackError(f"cluster {path}: not YAML ({str(error).splitlines()[0]})") from None
    try:
        file = ClusterFile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise TrackError(f"cluster {path}: {field}: {first['msg']}") from None
    spec = ClusterSpec(
        file.vcs, file.gpus_per_node, file.gpu_memory_mib, file.gpu_type, name=file.name
    )
    return spec, _profiling(file, path)


def _profiling(file: ClusterFile, path: Path) -> ProfilingSettings:
    wanted = file.profiling or ProfilingFile.model_validate({})
    lenders = wanted.lend_from or sorted(file.vcs, key=lambda vc: -file.vcs[vc])
    nodes: dict[str, int] = {}
    for i in range(wanted.nodes):
        vc = lenders[i % len(lenders)]
        nodes[vc] = nodes.get(vc, 0) + 1
    for vc, count in nodes.items():
        if count >= file.vcs.get(vc, 0):
            raise TrackError(
                f"cluster {path}: profiling.lend_from: vc {vc!r} cannot lend {count} of "
                f"{file.vcs.get(vc, 0)} nodes"
            )
    if wanted.scale_from and wanted.scale_from not in file.vcs:
        raise TrackError(f"cluster {path}: profiling.scale_from: no vc {wanted.scale_from!r}")
    scaling = Scaling(wanted.scale_from) if wanted.scale_from else None
    return ProfilingSettings(nodes, wanted.limit_s, wanted.max_gpus, scaling, wanted.known_s)
