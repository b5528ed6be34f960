"""Settings: what a person can set, each with type, bounds, unit and default.

A policy and the profiling partition each have one frozen model of settings. A cluster file, `--set`
and the header of a log hold its values; `describe` lists its fields for help, pages and docs. A
section (`borrowing`, `fairness`) is a model inside a model; its fields have dotted names, such as
`borrowing.lend_s`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, get_args, get_origin

import yaml
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from features.codec import Json
from features.yamls import NOT_YAML, printable

# Bounds of a number that is not 0. With these and a time since the epoch, results stay finite.
SMALLEST, LARGEST = 1e-6, 1e12


class InvalidSettings(ValueError):
    """Raised for a setting that has a value that is not allowed. The message is one line: name,
    value, and the allowed values."""


class UnknownPolicy(ValueError):
    """Raised where no policy has the name that was given."""


class Settings(BaseModel):
    """Base class of all settings and of their sections. Their fields are made by `setting`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _can_be_used(cls, value: Any) -> Any:
        """Return the value. Raise ValueError where it contains, at any depth, a number that cannot
        be computed with (such as NaN) or text that cannot be shown."""
        _check(value)
        return value

    def plain(self) -> Json:
        """Return every value in a form that can be written as YAML or JSON."""
        return self.model_dump(mode="json")

    def stated(self) -> Json:
        """Return the values that were given, without defaults, in a form that can be written as
        YAML or JSON."""
        return self.model_dump(mode="json", exclude_unset=True)

    def over(self, below: Settings) -> Json:
        """Return every value, where values given here replace those of `below`, section by
        section."""
        return _over(below, self.stated())


class PolicySettings(Settings):
    """Base class of the settings of a policy; it has no fields.

    Attributes:
        retired: names of settings that an earlier release had. Its logs hold them; nobody can set
            them any more.
    """

    retired: ClassVar[frozenset[str]] = frozenset()


class Configurable(Protocol):
    """The part of a policy's class that names the class of its settings. None: it has no
    settings."""

    Settings: ClassVar[type[PolicySettings] | None]


def accepted_by(kind: type[Configurable]) -> type[PolicySettings]:
    """Return the class of the settings of a policy's class. For a policy without settings, return
    the empty one."""
    return kind.Settings or PolicySettings


Kind = TypeVar("Kind", bound=Settings)
Weight = Annotated[float, Field(gt=0)]


def setting(default: Any, description: str, *, unit: str = "", **limits: Any) -> Any:
    """Return a field for a settings model.

    Args:
        limits: `ge`, `gt`, `le`, `lt`, and other arguments of `pydantic.Field`.
    """
    return Field(default, description=description, json_schema_extra={"unit": unit}, **limits)


class SharingRules(Settings):
    """Which jobs may share GPUs, whatever is predicted for them, and how GPUs are shared."""

    mode: Literal["mps", "time-slicing", "exclusive"] | None = setting(
        None,
        "how jobs share a GPU: at the same time by NVIDIA MPS (mps), in turns (time-slicing), or "
        "not at all (exclusive); speeds of pairs measured in another mode are not used. null: not "
        "stated",
    )
    unmeasured: bool = setting(
        False, "speeds of pairs that were not measured in `mode` are used, too, and marked as such"
    )
    max_gpus: int = setting(8, "jobs with more GPUs than this never share", unit="GPUs", ge=1)
    memory_margin_mib: float = setting(
        0.0, "GPU memory that two jobs on a GPU must leave free", unit="MiB", ge=0
    )


class ProfilingPartition(Settings):
    """The nodes on which jobs are profiled, before or while they wait.

    Jobs of one name often differ in their use of a GPU. So where jobs are profiled, by default none
    takes over the profile of another. Without nodes for profiling, the profiles come from watching
    jobs that run alone, and similar jobs take them over (`known_s`).
    """

    nodes: dict[str, Annotated[int, Field(ge=1)]] = setting(
        {}, "nodes that each virtual cluster lends for good", unit="nodes"
    )
    largest_share: float = setting(
        0.08,  # one node of twelve is more, one of thirteen is not
        "nodes that are more than this share of the cluster's GPUs stay with their virtual clusters"
        " under a policy that can do without; 1: never",
        gt=0,
        le=1,
    )
    limit_s: float = setting(200.0, "how long a job is profiled", unit="s", gt=0)
    max_gpus: int = setting(8, "the largest job that is profiled", unit="GPUs", ge=1)
    scale_from: str = setting("", "virtual cluster that lends one more node while many wait")
    known_s: float | None = setting(
        None,
        "a job like one profiled less than so long ago takes over its profile; 0: none does; null: "
        "none where jobs are profiled, else for 7 days",
        unit="s",
        ge=0,
    )

    @property
    def profiles(self) -> bool:
        """Whether the partition has, or is ever lent, a node."""
        return bool(self.nodes or self.scale_from)

    @property
    def carries_over_s(self) -> float:
        """Return for how many seconds the profile of a job is also used for similar jobs."""
        if self.known_s is not None:
            return self.known_s
        return 0.0 if self.profiles else 7 * 86_400.0


# --- reading ------------------------------------------------------------------------------------


def read(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Return settings made from plain values. Raise InvalidSettings where one is not allowed."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    shown = name if name.isprintable() else repr(name)
    if first["type"] == "extra_forbidden":
        within = name.rpartition(".")[0]
        names = [one.name for one in describe(kind) if one.name.rpartition(".")[0] == within]
        there = ", ".join(names) or "none"
        raise InvalidSettings(f"{shown}: no such setting; there are: {there}")
    what = "give its settings by name" if first["type"] == "model_type" else first["msg"].lower()
    raise InvalidSettings(f"{shown} is {printable(first['input'])}: {what}")


def with_assignments(values: Mapping[str, Any], texts: Sequence[str]) -> Json:
    """Return plain values in which each `NAME=VALUE` of `texts` replaces the value of that name.
    Names of fields in sections are dotted.

    Values are read as YAML, as in a cluster file. Raise InvalidSettings where a text is not of this
    form.
    """
    found = deepcopy(dict(values))
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidSettings(f"{text}: use NAME=VALUE")
        *sections, last = name.split(".")
        place = found
        for section in sections:
            inner = place.get(section)
            place[section] = place = dict(inner) if isinstance(inner, Mapping) else {}
        place[last] = value_of(value)
    return found


def value_of(text: str) -> Any:
    """Return the value that a person wrote, read as YAML as in a cluster file. Raise
    InvalidSettings where it is no valid YAML."""
    try:
        return json.loads(text)  # YAML takes 1e6 for a word
    except (ValueError, RecursionError):
        pass
    try:
        found = yaml.safe_load(text)
        json.dumps(found)  # neither dates nor numbers too long to be shown
        return found
    except NOT_YAML:
        shown = repr(text) if len(text) <= 60 else f"{text[:60]!r}..."
        raise InvalidSettings(f"{shown} is no value") from None


def _over(below: Settings, stated: Mapping[str, Any]) -> Json:
    found = below.plain()
    for name, value in stated.items():
        under = getattr(below, name)
        section = isinstance(under, Settings) and isinstance(value, Mapping)
        found[name] = _over(under, value) if section else value
    return found


def _check(value: Any) -> None:
    if isinstance(value, str):
        if not value.isprintable():
            raise PydanticCustomError("text", "holds a character that cannot be printed")
    elif isinstance(value, Mapping):
        for one in (*value, *value.values()):
            _check(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _check(one)
    elif isinstance(value, int | float) and value and not SMALLEST <= abs(value) <= LARGEST:
        bounds = f"a number other than 0 must be {SMALLEST:g} to {LARGEST:g} in size"
        raise PydanticCustomError("size", bounds)


# --- showing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Described:
    """A field of settings, as help and docs show it.

    Attributes:
        name: name of the field, dotted inside sections.
        accepts: the allowed values in words; "" where all are.
        section: whether it is a section; its fields follow in the list.
    """

    name: str
    default: Any
    unit: str
    accepts: str
    description: str
    section: bool

    @property
    def written(self) -> str:
        """The default, written as in a cluster file."""
        return json.dumps(self.default)


def describe(kind: type[Settings], prefix: str = "") -> list[Described]:
    """Return the fields of a settings class in order. Each section is followed by its own
    fields."""
    found: list[Described] = []
    for name, field in kind.model_fields.items():
        inner = _section(field)
        extra = field.json_schema_extra
        found.append(
            Described(
                name=prefix + name,
                default={} if isinstance(field.default, Settings) else field.default,
                unit=str(extra.get("unit", "")) if isinstance(extra, dict) else "",
                accepts=_limits(field),
                description=field.description or "",
                section=inner is not None,
            )
        )
        if inner is not None:
            found += describe(inner, f"{prefix}{name}.")
    return found


def flat(settings: Settings) -> Json:
    """Return every value by its dotted name. For a section that is off, return only the section's
    name with None."""
    return dict(_flat(settings, ""))


def _flat(settings: Settings, prefix: str) -> Iterator[tuple[str, Any]]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _section(field: FieldInfo) -> type[Settings] | None:
    """Return the settings class of a field that is a section, also where the section may be None.
    Return None for other fields."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    for kind in kinds or [field.annotation]:
        if isinstance(kind, type) and issubclass(kind, Settings):
            return kind
    return None


def _limits(field: FieldInfo) -> str:
    low = high = ""
    words = [
        w
        for kind in get_args(field.annotation)
        if get_origin(kind) is Literal
        for w in get_args(kind)
    ]
    if words:
        return ", ".join(words)
    for limit in field.metadata:
        if isinstance(limit, Ge):
            low = f"{limit.ge:g}"
        elif isinstance(limit, Gt):
            low = f"above {limit.gt:g}"
        elif isinstance(limit, Le):
            high = f"{limit.le:g}"
        elif isinstance(limit, Lt):
            high = f"below {limit.lt:g}"
    if low and high:
        return f"{low} to {high}"
    return f"{low} or more" if low and not low.startswith("above") else low or high
