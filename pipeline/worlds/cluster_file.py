"""Reads a cluster file: a YAML file in which a person describes a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)

from features.codec import Json
from features.given import read_text
from features.yamls import NOT_YAML
from pipeline.worlds.venus import TrackError
from scheduler.assembly import CoreSpec, Stated
from scheduler.core.cluster import ClusterSpec, NodeGroup
from scheduler.core.limits import GpuMemory, GpuType, Line, Name, NodeName
from scheduler.core.settings import InvalidSettings, ProfilingPartition, read

DEFAULT_POLICY = "pellucid"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class NodesFile(_Strict):
    """Equal nodes of one virtual cluster, as written in a cluster file. A field that is left out
    has the value of the whole file."""

    nodes: int = Field(ge=1, le=100_000)
    gpus_per_node: Annotated[PositiveInt, Field(le=64)] | None = None
    gpu_type: GpuType | None = None
    gpu_memory_mib: GpuMemory | None = None
    names: list[NodeName] = []

    @model_validator(mode="after")
    def _a_name_each(self) -> NodesFile:
        if self.names and len(self.names) != self.nodes:
            raise ValueError(f"{len(self.names)} names for {self.nodes} nodes")
        return self


def _groups(value: Any) -> Any:
    """Return a list of groups of nodes as it is; turn a bare number of nodes into a list of one
    group."""
    return value if isinstance(value, list) else [{"nodes": value}]


class ClusterFile(_Strict):
    """A cluster, as a person writes it down (YAML).

    Attributes:
        profiling: fields of `ProfilingPartition`; `nodes` may also be a number: the virtual
            clusters of `lend_from` then lend one node each, in turn, until there are so many.
            Without `lend_from` all virtual clusters do, the largest first.
        policy: `name`, and beside it the settings of that policy that are not its defaults; or the
            name alone.
    """

    name: Annotated[Line, Field(max_length=128)] = "cluster"
    gpus_per_node: PositiveInt = Field(8, le=64)
    gpu_type: GpuType = ""
    gpu_memory_mib: GpuMemory = 24_576.0
    vcs: dict[Name, Annotated[list[NodesFile], Field(min_length=1), BeforeValidator(_groups)]] = (
        Field(min_length=1)
    )
    profiling: Json = {}
    policy: Annotated[
        Json, BeforeValidator(lambda has: {"name": has} if isinstance(has, str) else has)
    ] = {}

    @model_validator(mode="after")
    def _names_differ(self) -> ClusterFile:
        every = [name for has in self.vcs.values() for nodes in has for name in nodes.names]
        if twice := sorted({name for name in every if every.count(name) > 1}):
            raise ValueError(f"two nodes are named {twice[0]!r}")
        return self

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of nodes of each virtual cluster."""
        return {vc: sum(group.nodes for group in has) for vc, has in self.vcs.items()}

    def spec(self) -> ClusterSpec:
        """Return the cluster's nodes, by virtual cluster."""
        if all(group.model_fields_set == {"nodes"} for has in self.vcs.values() for group in has):
            return ClusterSpec(
                self.counts, self.gpus_per_node, self.gpu_memory_mib, self.gpu_type, name=self.name
            )
        groups = {vc: [self._group(nodes) for nodes in has] for vc, has in self.vcs.items()}
        return ClusterSpec.mixed(groups, gpu_memory_mib=self.gpu_memory_mib, name=self.name)

    def _group(self, nodes: NodesFile) -> NodeGroup:
        return NodeGroup(
            gpu_type=self.gpu_type if nodes.gpu_type is None else nodes.gpu_type,
            nodes=nodes.nodes,
            gpus_per_node=nodes.gpus_per_node or self.gpus_per_node,
            gpu_memory_mib=nodes.gpu_memory_mib or self.gpu_memory_mib,
            names=tuple(nodes.names),
        )


class _Lenders(_Strict):
    nodes: Annotated[int, Field(ge=0)] | dict[str, PositiveInt] = 0
    lend_from: list[str] = []


def read_cluster(path: Path) -> CoreSpec:
    """Return the cluster and policy in a cluster file. Raises TrackError, which names the field,
    its value and what is accepted."""
    return read_cluster_file(path)[0]


def read_cluster_file(path: Path) -> tuple[CoreSpec, Stated]:
    """Return the cluster and policy in a cluster file, and whether the file states its name and the
    policy. Raises TrackError as `read_cluster`."""
    content = _content(path)
    if not isinstance(content, dict):
        held = "empty" if content is None else "no list of names and values"
        raise TrackError(f"cluster {path}: it is {held}; write at least vcs: {{NAME: NODES}}")
    try:
        file = ClusterFile.model_validate(content)
        name, values = _policy(file.policy)
        spec = CoreSpec.of(file.spec(), name, values, _partition(file.profiling, file.counts))
        return spec, Stated(name="name" in file.model_fields_set, policy="name" in file.policy)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise _refused(path, f"{field}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:  # also of a number too long to be shown
        raise _refused(path, str(error)) from None


def _content(path: Path) -> Any:
    try:
        return yaml.safe_load(read_text(path))
    except OSError as error:
        raise _refused(path, str(error.strerror)) from None
    except RecursionError:
        raise _refused(path, "not YAML (too many brackets within brackets)") from None
    except NOT_YAML as error:
        why = re.split(r"[;\n]", str(error))[0]
        raise _refused(path, f"not YAML ({why})") from None


def _refused(path: Path, why: str) -> TrackError:
    """Return an error about the cluster file, in one line. Unprintable characters, which a terminal
    would obey, are replaced."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in why)
    return TrackError(f"cluster {path}: {plain}")


def _policy(section: Mapping[str, Any]) -> tuple[str, Json]:
    values = dict(section)
    name = values.pop("name", DEFAULT_POLICY)
    if not isinstance(name, str):
        raise InvalidSettings(f"policy.name is {name!r}: give the name of a policy")
    return name, values


def _partition(section: Mapping[str, Any], vcs: Mapping[str, int]) -> ProfilingPartition:
    values = dict(section)
    mine = {key: values.pop(key) for key in ("nodes", "lend_from") if key in values}
    try:
        lenders = _Lenders.model_validate(mine)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidSettings(f"profiling.{first['loc'][0]}: {first['msg']}") from None
    nodes: dict[str, int] = {}
    if isinstance(lenders.nodes, int):
        if lenders.nodes > (every := sum(vcs.values())):
            raise InvalidSettings(f"profiling.nodes: more than the {every} nodes of the cluster")
        turns = lenders.lend_from or sorted(vcs, key=lambda vc: -vcs[vc])
        for i in range(lenders.nodes):
            vc = turns[i % len(turns)]
            nodes[vc] = nodes.get(vc, 0) + 1
    else:
        nodes = lenders.nodes
    for vc, lent in nodes.items():
        if lent >= vcs.get(vc, 0):
            raise InvalidSettings(
                f"profiling.lend_from: vc {vc!r} cannot lend {lent} of {vcs.get(vc, 0)} nodes"
            )
    try:
        partition = read(ProfilingPartition, {**values, **({"nodes": nodes} if mine else {})})
    except InvalidSettings as error:
        raise InvalidSettings(f"profiling.{error}") from None
    if partition.scale_from and partition.scale_from not in vcs:
        raise InvalidSettings(f"profiling.scale_from: no vc {partition.scale_from!r}")
    return partition
