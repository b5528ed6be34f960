"""What a job asks for, on pages: how it is shown, and the form that changes it.

All of it is made from the declared fields of a job. In the form a time is written as on the
command line, and a field that is left blank stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError

from features.clock import TIME_HELP, read_seconds
from scheduler.core.request import CHANGEABLE, FIELDS, Field
from scheduler.explain.words import duration, listed, number
from scheduler.service.api.problems import Problem
from scheduler.service.api.schemas import ChangeRequest
from scheduler.service.log.store.rows import JobRow

LONGEST_NUMBER = 32  # characters


def shown(one: Field, value: Any) -> str:
    """Return the value of a job's field in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == "":
        return one.ask.none or "none"
    if one.ask.unit == "s":
        return duration(value)
    return f"{number(value)} MiB" if one.ask.unit == "MiB" else str(value)


def clock(seconds: float) -> str:
    """Return a time as forms show it and take it: 1:30:00, or seconds where they are no whole
    number."""
    if seconds != int(seconds):
        return str(seconds)
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def asked(job: JobRow) -> list[tuple[str, str]]:
    """Return (label, value in words) for each field that the job asks for. Fields of yes or no are
    always included, others only with a value.
    """
    given = ((one, getattr(job, name)) for name, one in FIELDS.items())
    return [(one.ask.label, shown(one, value)) for one, value in given if value or one.kind is bool]


def differences(job: JobRow, changes: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (label, present value, new value) for each field of a job that changes, in words."""
    return [
        (one.ask.label, shown(one, getattr(job, name)), shown(one, changes[name]))
        for name, one in CHANGEABLE.items()
        if name in changes
    ]


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the form that changes a job. `of`: the field of the job."""

    of: Field

    @property
    def name(self) -> str:
        """Return the name of the input: `time_limit` for `time_limit_s`."""
        return self.of.name.removesuffix("_s") if self.of.ask.unit == "s" else self.of.name

    @property
    def title(self) -> str:
        """Return the name of the field, as a sentence about it begins."""
        label = self.of.ask.label
        return f"{label[:1].upper()}{label[1:]}"

    @property
    def label(self) -> str:
        """Return the name of the field, with how it is written."""
        unit = {"": "", "s": ", as 1:30:00, 90m or seconds"}.get(
            self.of.ask.unit, f", {self.of.ask.unit}"
        )
        return f"{self.title}{unit}"

    @property
    def longest(self) -> int:
        """Return how many characters the input takes at most."""
        return self.of.ask.longest if self.of.kind is str else LONGEST_NUMBER

    @property
    def attributes(self) -> dict[str, str | int | None]:
        """Return the attributes of the HTML element. Those that are None are left out of it."""
        ask = self.of.ask
        if self.of.kind is str:
            return {"type": "text", "name": self.name, "maxlength": self.longest}
        if ask.unit == "s":
            return {"type": "text", "name": self.name, "maxlength": self.longest}
        least = ask.above if ask.least is None else ask.least
        return {
            "type": "number",
            "name": self.name,
            "min": None if least is None else f"{least:g}",
            "step": None if self.of.kind is int else "any",
            "inputmode": "numeric" if self.of.kind is int else "decimal",
        }

    @property
    def accepts(self) -> str:
        ask = self.of.ask
        if self.of.kind is bool:
            return "yes or no"
        if self.of.kind is str:
            return f"a line of {max(ask.shortest, 1)} to {ask.longest} characters"
        if ask.unit == "s":
            return f"a time above 0: {TIME_HELP}"
        bounds = (("from", ask.least), ("above", ask.above), ("up to", ask.most))
        words = [f"{w} {bound:,.10g}" for w, bound in bounds if bound is not None]
        return " ".join(["a whole number" if self.of.kind is int else "a number", *words])

    def sent(self, value: Any) -> str:
        """Return a value of the job's field as the form sends it, as text."""
        if isinstance(value, bool):
            return shown(self.of, value)
        return clock(value) if self.of.ask.unit == "s" else str(value)

    def read(self, text: str) -> Any:
        """Return the text of this input as a value for a request. Times are converted to seconds,
        as the command line's are. The request checks the value later.
        """
        if self.of.ask.unit != "s":
            return text
        try:
            return read_seconds(text)
        except ValueError:
            return text

    def now(self, job: JobRow) -> str:
        """Return the text shown in the input while nothing is filled in: the job's present
        value.
        """
        value = getattr(job, self.of.name)
        if value and self.of.ask.unit == "s":
            return clock(round(value))
        return shown(self.of, value)


INPUTS = {name: Input(one) for name, one in CHANGEABLE.items()}


def inputs(vcs: Iterable[str], job: JobRow) -> list[tuple[Input, Sequence[str]]]:
    """Return the inputs of the form for a job, each with its choices, if there are any. `vcs`:
    virtual clusters to which the job may move; without another one, there is no input for it.
    """
    others = [vc for vc in vcs if vc != job.vc]
    found = [(one, ("yes", "no") if one.of.kind is bool else ()) for one in INPUTS.values()]
    return [
        (one, others if one.name == "vc" else choices)
        for one, choices in found
        if one.name != "vc" or others
    ]


def wanted(given: Mapping[str, str]) -> ChangeRequest:
    """Return the request that the form asks for. Raise Problem (422) where a value does not fit."""
    sent = {name: one for name, one in INPUTS.items() if given[one.name]}
    for one in sent.values():
        if len(given[one.name]) > one.longest:
            what = f"{one.title} is longer than {one.longest} characters; give {one.accepts}"
            raise Problem(422, "invalid-request", what)
    try:
        values = {name: one.read(given[one.name]) for name, one in sent.items()}
        return ChangeRequest.model_validate(values)
    except ValidationError as error:
        where = error.errors()[0]["loc"]
    if not where:
        labels = listed([one.of.ask.label for one in INPUTS.values()])
        raise Problem(422, "invalid-request", f"say what is to be different: {labels}")
    one = sent[str(where[0])]
    detail = f"{one.title} is {given[one.name]}; give {one.accepts}"
    raise Problem(422, "invalid-request", detail)


def filled_in(changes: Mapping[str, Any]) -> str:
    """Return the query of an address that opens the form with these changes filled in; "" where the
    form cannot make them.
    """
    if changes.keys() - INPUTS.keys() or "" in changes.values():
        return ""
    sent = {INPUTS[name].name: INPUTS[name].sent(value) for name, value in changes.items()}
    return urlencode({"do": "change", **sent})
