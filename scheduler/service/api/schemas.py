"""What the bodies of requests may contain. Anything else is refused with the name of the field."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import MISSING
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator

from features.codec import Json
from profiler.progress.names import VARIABLE as PROGRESS
from scheduler.core.limits import GpuMemory, GpuType, Line, Name, NodeName
from scheduler.core.request import CHANGEABLE, FIELDS, MAX_PRIORITY, TRIED
from scheduler.core.request import Field as JobField

LONGEST_PATH = 4096  # what the kernel takes
MOST_TASKS = 1000  # of an array
RESERVED = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character")
    return text


def _absolute(path: str) -> str:
    if path and (not path.startswith("/") or "\0" in path):
        raise ValueError("give an absolute path")
    return path


def _variable(name: str) -> str:
    if name in RESERVED or (name.startswith("PELLUCID_") and name != PROGRESS):
        raise ValueError(f"{name} is set by the service")
    return name


Argument = Annotated[str, Field(max_length=32_768), AfterValidator(_argument)]
Variable = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"), AfterValidator(_variable)
]


class Request(BaseModel):
    """Base of request bodies: unknown fields, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _typed(one: JobField, *, different: bool) -> tuple[Any, Any]:
    """Return the type and the default of a job's field in a request. `different`: whether the
    request changes a job, so that the field may be left out.
    """
    ask, left_out = one.ask, different or one.default is MISSING
    bounds: Json = {"ge": ask.least, "gt": ask.above, "le": ask.most}
    if one.kind is str:
        none = different and one.nullable  # given as ""
        bounds = {"min_length": None if none else ask.shortest or None, "max_length": ask.longest}
    kind: Any = Line if one.kind is str else one.kind
    limits = {name: bound for name, bound in bounds.items() if bound is not None}
    if ask.check is not None:
        kind = Annotated[kind, AfterValidator(ask.check)]
    of = kind | None if left_out or one.nullable else kind
    field = Field(description=one.help(different=different), **limits)
    return Annotated[of, field], None if left_out else one.default


if TYPE_CHECKING:
    _Job = Request
    _Difference = Request
    _Trial = Request
else:
    _Job, _Difference, _Trial = (
        create_model(name, __base__=Request, **{k: _typed(v, different=d) for k, v in of.items()})
        for name, of, d in (
            ("_Job", FIELDS, False),
            ("_Difference", CHANGEABLE, True),
            ("_Trial", TRIED, True),
        )
    )


class SubmitRequest(_Job):
    """A job to be run."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "command": ["python", "train.py", "--epochs", "10"],
                    "gpus": 2,
                    "vc": "vision",
                    "name": "resnet-baseline",
                    "time_limit_s": 7200,
                }
            ]
        }
    )

    command: Annotated[
        list[Argument],
        Field(min_length=1, max_length=1024, description="Argument vector; no shell reads it."),
    ]
    workdir: Annotated[str, Field(max_length=LONGEST_PATH), AfterValidator(_absolute)] = ""
    amounts: Annotated[
        dict[Annotated[str, Field(max_length=64)], float],
        Field(
            max_length=16,
            description=(
                "How much work the files named in the command state, "
                'and the batch size: {"epochs": 90}. It is not stored '
                "as it is."
            ),
        ),
    ] = {}  # noqa: RUF012
    environment: Annotated[dict[Variable, Argument], Field(max_length=256)] = {}  # noqa: RUF012

    @model_validator(mode="after")
    def _runs_something(self) -> SubmitRequest:
        if not self.command[0]:
            raise ValueError("the first word of the command is empty")
        if len(self.command[0]) > LONGEST_PATH:
            raise ValueError(f"the first word of the command is longer than {LONGEST_PATH}")
        return self


class Tasks(NamedTuple):
    """The numbers of an array's tasks, and how many of them may run at once (0: all)."""

    numbers: list[int]
    at_once: int = 0


def tasks_of(text: str) -> Tasks:
    """Return the tasks of "0-9", "1,3,7", "0-10:2" or "0-9%2", as `sbatch --array` takes them.
    Raise ValueError for any other text."""
    found: set[int] = set()
    listed, percent, most = text.partition("%")
    wrong = ValueError("give numbers as sbatch does: 0-9, 1,3,7, 0-10:2 or 0-9%2")
    if percent and not re.fullmatch(r"[1-9][0-9]{0,5}", most.strip()):
        raise wrong
    for part in listed.split(","):
        one = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6})(?::([0-9]{1,6}))?)?", part.strip())
        if one is None:
            raise wrong
        last, step = int(one[2] or one[1]), int(one[3] or 1)
        if last < int(one[1]) or not step:
            raise ValueError(f"{part} holds no number")
        found.update(range(int(one[1]), last + 1, step))
        if len(found) > MOST_TASKS:
            raise ValueError(f"give at most {MOST_TASKS:,} tasks")
    return Tasks(sorted(found), int(most or 0))


def each_task(jobs: Iterable[str]) -> list[str]:
    """Return ids of jobs, with "ARRAY_[0-4,9]" expanded into its tasks, as scancel does. Raise
    ValueError where the numbers of an array cannot be read."""
    found: list[str] = []
    for job in jobs:
        named = re.fullmatch(r"([^\[\]]+_)\[([0-9,:-]+)\]", job)
        found += [f"{named[1]}{n}" for n in tasks_of(named[2]).numbers] if named else [job]
    return found


def _array(text: str) -> str:
    tasks_of(text)
    return text


class ArrayRequest(SubmitRequest):
    """An array of jobs that differ only in a number, which each finds in its environment."""

    array: Annotated[
        str,
        Field(
            max_length=1024,
            description="Numbers of the tasks: 0-9, 1,3,7, 0-10:2 or 0-9%2.",
            examples=["0-9"],
        ),
        AfterValidator(_array),
    ]


class PriorityRequest(Request):
    """A new priority for a job."""

    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY, examples=[10])]


class ChangeRequest(_Difference):
    """What a waiting job is to ask for instead of what it asks for now. At least one field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"gpus": 2}, {"share": True}]})

    @model_validator(mode="after")
    def _changes_something(self) -> ChangeRequest:
        if not self.given():
            raise ValueError("say what is to be different: gpus, time_limit_s, share, vc, ...")
        return self

    def given(self) -> Json:
        """Return the fields that the request sets, with their values in a job's form."""
        given = {name: value for name, value in self.model_dump().items() if value is not None}
        return {n: None if CHANGEABLE[n].nullable and v == "" else v for n, v in given.items()}


MOST_CANCELLED = 1000  # in one request


class CancelRequest(Request):
    """Jobs to cancel."""

    jobs: Annotated[
        list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=MOST_CANCELLED)
    ]


class NodeRequest(Request):
    """Drain a node (nothing new starts there; what runs goes on), or open it again."""

    open: bool
    reason: Annotated[
        Line, Field(max_length=256, description="Reason, shown with the drained node.")
    ] = ""


NewVc = Annotated[bool, Field(description="Allow a virtual cluster that does not exist yet.")]


class _NodeShape(Request):
    """The properties of a node: GPUs, their type and memory."""

    gpus: Annotated[int | None, Field(ge=1, le=64)] = None
    gpu_type: GpuType | None = None
    gpu_memory_mib: GpuMemory | None = None
    new_vc: NewVc = False


class AddNodeRequest(_NodeShape):
    """A node to be added."""

    name: NodeName
    vc: Name


class ChangeNodeRequest(_NodeShape):
    """What a node is to have once nothing runs there. At least one field besides the reason."""

    vc: Name | None = None
    reason: Annotated[Line, Field(max_length=256)] = ""

    @model_validator(mode="after")
    def _changes_something(self) -> ChangeNodeRequest:
        if all(v is None for v in (self.vc, self.gpus, self.gpu_type, self.gpu_memory_mib)):
            raise ValueError("say what is to be different: vc, gpus, gpu_type, gpu_memory_mib")
        return self


class SettingsRequest(Request):
    """Settings of the policy to be changed, by their dotted names; the others stay."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"settings": {"ageing": 0.5, "fairness.weight": 1.0}}]}
    )

    settings: Annotated[Json, Field(min_length=1, max_length=256)]
    reason: Annotated[Line, Field(max_length=256)] = ""


class WhatIfRequest(_Trial):
    """What is to be different about a job in a forecast. At least one field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"gpus": 4}, {"first": True}]})

    first: Annotated[bool, Field(description="Forecast as if the job went before all others.")] = (
        False
    )

    @model_validator(mode="after")
    def _asks_something(self) -> WhatIfRequest:
        if not self.changes():
            raise ValueError("say what is to be different: gpus, first, priority, share, vc, ...")
        return self

    def changes(self) -> Json:
        """Return the fields that were given, in the form of a question to the analyst."""
        given = {name: value for name, value in self.model_dump().items() if value is not None}
        return {name: value for name, value in given.items() if name != "first" or value}
