"""The fields of a job's request. Each is declared here once; the API, the command-line options, the
events of a change, its sentence and the page all derive from the declaration.

This module imports nothing but the standard library, because the command line reads it for its
options. Its annotations are values, not text, because the declarations stand in them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import inf
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from features.expected import checked
from features.job import Job
from scheduler.core.plural import count

MAX_PRIORITY = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """How a field of a request is asked for, changed and shown.

    Attributes:
        help: a sentence for the command line and the API's document.
        none: what leaving the field out means, in words; "" is shown nowhere.
        label: the field's name on pages.
        unit: "s", "MiB", or "" for none.
        least, above, most: bounds of a number: at least, more than, at most.
        shortest, longest: bounds on the length of a text.
        changeable: whether the owner or an operator may change it while the job waits.
        words: a change of the field as the beginning of a sentence; None: "with LABEL VALUE".
        check: function that returns a text, or raises ValueError if the text is not allowed.
    """

    help: str
    none: str = ""
    label: str = ""
    unit: str = ""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    shortest: int = 0
    longest: int = 128
    changeable: bool = False
    words: Callable[[Any], str] | None = None
    check: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a user asks for with a job. Only fields that all who may see the job may see.

    Attributes:
        command: argument vector, at least one word.
        workdir: directory on the host on which the job runs; "": the service's own.
        memory_mib, time_limit_s: limits that are enforced; None: no limit.
        share: whether the job may share GPUs with another.
        profile: whether the job may be profiled before it starts.
        progress: whether its output may be read to find how far it is.
        priority: jobs with a higher one go first; 0 unless an operator set it.
    """

    command: tuple[str, ...]
    gpus: Annotated[
        int,
        Ask(
            help="Number of GPUs, all needed at once.",
            label="GPUs",
            least=1,
            most=1_000_000,
            changeable=True,
            words=lambda gpus: f"with {count(gpus, 'GPU')}",
        ),
    ] = 1
    time_limit_s: Annotated[
        float | None,
        Ask(
            help="A job that runs longer is stopped: 1:30:00, 1:30 (minutes:seconds), 2-12 "
            "(days-hours), 90m, 12h; a bare number is seconds.",
            none="no limit",
            label="time limit",
            unit="s",
            above=0,
            most=1e9,
            changeable=True,
            words=lambda limit_s: (
                f"with a time limit of {limit_s / 3600:.3g} h" if limit_s else "with no time limit"
            ),
        ),
    ] = None
    expect: Annotated[
        str,
        Ask(
            help="How long you expect the job to run: 6h, 1:30:00, test (at most 15 minutes) or "
            "full (at least an hour). It helps to predict the duration, more if your earlier "
            "answers were right. It stops nothing.",
            label="expected to run",
            longest=32,
            changeable=True,
            words=lambda time: f"expected to run {time}" if time else "with nothing expected of it",
            check=checked,
        ),
    ] = ""
    gpu_type: Annotated[
        str | None,
        Ask(
            help="Type of GPU that the job needs.",
            none="any",
            label="GPU type",
            shortest=1,
            longest=64,
            changeable=True,
            words=lambda gpu_type: f"on {gpu_type or 'any GPU type'}",
        ),
    ] = None
    cpus: Annotated[
        float | None,
        Ask(
            help="Number of CPU cores the job uses. It only helps to predict the duration: no "
            "cores are reserved or limited.",
            label="CPU cores",
            above=0,
            most=1e6,
        ),
    ] = None
    memory_mib: Annotated[
        float | None,
        Ask(
            help="Host memory (RAM) that the job may take, MiB. If it takes more, it is stopped.",
            none="no limit",
            label="memory",
            unit="MiB",
            above=0,
            most=1e9,
        ),
    ] = None
    share: Annotated[
        bool,
        Ask(
            help="Allow another job on the job's GPUs at the same time.",
            label="may share GPUs",
            changeable=True,
            words=lambda may: "sharing GPUs allowed" if may else "with GPUs of its own",
        ),
    ] = True
    profile: Annotated[
        bool,
        Ask(
            help="Allow the job to be profiled: run for some minutes to measure its use of a GPU, "
            "then started again from its beginning.",
            label="may be profiled first",
            changeable=True,
            words=lambda may: "profiled beforehand" if may else "not profiled beforehand",
        ),
    ] = True
    progress: Annotated[
        bool,
        Ask(
            help="Allow the service to read the job's progress in its output. It keeps the "
            "numbers, not the lines.",
            label="its progress may be read",
        ),
    ] = True
    notify: Annotated[
        bool,
        Ask(
            help="Send the job's owner a message when the job starts and when it ends. Refused if "
            "the service is not set up to send messages.",
            label="messages when it starts and ends",
            changeable=True,
            words=lambda sent: "with messages" if sent else "without messages",
        ),
    ] = False
    vc: Annotated[
        str,
        Ask(
            help="Virtual cluster (nodes with a queue of their own) in which the job runs.",
            none="the only one open to you; needed if there are several",
            label="virtual cluster",
            shortest=1,
            changeable=True,
            words=lambda vc: f"in virtual cluster {vc}",
        ),
    ]
    name: Annotated[
        str, Ask(help="Name of the job. You and operators see it.", label="name", longest=256)
    ] = ""
    comment: Annotated[
        str,
        Ask(
            help="Note about the job. Whoever sees the job sees it.",
            label="comment",
            longest=256,
            changeable=True,
        ),
    ] = ""
    after: Annotated[
        str,
        Ask(
            help="Ids of jobs, separated by commas. The job starts only after all of them have "
            "ended successfully.",
            label="after success of",
            longest=512,
            changeable=True,
            words=lambda jobs: f"after success of {jobs}" if jobs else "after no other job",
        ),
    ] = ""
    after_any: Annotated[
        str,
        Ask(
            help="Ids of jobs, separated by commas. The job starts only after all of them have "
            "ended, successfully or not.",
            label="after the end of",
            longest=512,
            changeable=True,
            words=lambda jobs: f"after the end of {jobs}" if jobs else "after no other job's end",
        ),
    ] = ""
    workdir: str = ""
    priority: Annotated[
        int,
        Ask(
            help="Jobs of higher priority go first. Only an operator may give one above 0.",
            label="priority",
            least=-MAX_PRIORITY,
            most=MAX_PRIORITY,
        ),
    ] = 0


@dataclass(frozen=True, slots=True)
class Field:
    """The declaration of a field of a request.

    Attributes:
        kind: int, float, str or bool.
        nullable: whether the value may also be None.
        default: MISSING when there is none: the value has to be given, or is found out.
    """

    name: str
    kind: type
    nullable: bool
    default: Any
    ask: Ask

    @property
    def option(self) -> str:
        """The command-line option: "--time-limit" for `time_limit_s`."""
        stem = self.name.removesuffix(f"_{self.ask.unit.lower()}") if self.ask.unit else self.name
        return f"--{stem.replace('_', '-')}"

    def help(self, *, different: bool = False) -> str:
        """Return what the field means and what leaving it out means, as text. For a change
        (`different`), describe what giving "" does instead."""
        none, text = self.ask.none, self.nullable and self.kind is str
        if not none or (different and not text):
            return self.ask.help
        return f"{self.ask.help} " + (f'"" means {none}.' if different else f"Left out: {none}.")

    def fits(self, value: Any) -> bool:
        """Return whether an event may hold the value. Upper bounds are not checked, since they may
        have been different when the event was written."""
        if value is None:
            return self.nullable
        if self.kind in (int, float):
            right = type(value) is int or (self.kind is float and type(value) is float)
            above = -inf if self.ask.above is None else self.ask.above
            least = -inf if self.ask.least is None else self.ask.least
            return right and above < value < inf and value >= least
        return type(value) is self.kind

    def words(self, value: Any) -> str:
        """Return a change to the value as the beginning of a sentence, such as "with 4 GPUs"."""
        if self.ask.words:
            return self.ask.words(value)
        return f"without {self.ask.label}" if value == "" else f"with {self.ask.label} {value}"


def _declared() -> dict[str, Field]:
    hints, found = get_type_hints(JobRequest, include_extras=True), {}
    for one in fields(JobRequest):
        if get_origin(hints[one.name]) is Annotated:
            of, ask = get_args(hints[one.name])
            kinds = [kind for kind in get_args(of) or (of,) if kind is not NoneType]
            found[one.name] = Field(
                name=one.name, kind=kinds[0], nullable=of != kinds[0], default=one.default, ask=ask
            )
    return found


FIELDS: Mapping[str, Field] = _declared()
CHANGEABLE = {name: one for name, one in FIELDS.items() if one.ask.changeable}
OF_JOB = frozenset(one.name for one in fields(Job)) & FIELDS.keys()  # what decisions look at
TRIED = {name: FIELDS[name] for name in FIELDS if name in {*CHANGEABLE, "priority"}}  # in a what-if


def is_change(body: Mapping[str, Any]) -> bool:
    """Return whether the body of a CHANGED event holds at least one field of a request, and only
    changeable ones with allowed values."""
    return bool(body) and all(
        name in CHANGEABLE and CHANGEABLE[name].fits(value) for name, value in body.items()
    )
