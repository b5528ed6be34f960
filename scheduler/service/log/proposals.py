"""Models that operators propose on the web pages, and what became of the proposals.

A proposal is a folder with the models, who proposed them and why, how they compared with the
champion (the models in use), and who asked to promote them. The pages write what operators ask for.
The maintenance process runs `pellucid promote` to judge and promote
(`scheduler.service.log.judging`), and writes the results.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from features.files import write_whole
from features.given import read_text
from models.bundle import Bundle

LOOKS = 5  # at most, a week apart: `models.training.judging` allows for so many
WEEK_S = 7 * 86_400.0
FOLDER, BUNDLE = "proposals", "bundle"  # in the state folder; in that of a proposal
PROPOSED, JUDGED, WANTED, DONE = "proposed.json", "judged.json", "wanted.json", "done.json"
T = TypeVar("T")
# names a proposal: when, of what, and which of them; older names lack the last
WORD = re.compile(r"[0-9]{1,12}-[0-9a-f]{8}(-[0-9a-f]{8})?")


class NoProposal(ValueError):
    """Raised where a proposal cannot be made, found or promoted. The text is a sentence for
    people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """What an operator proposed.

    Attributes:
        at, by, why: when (seconds since the epoch), by whom, and why.
        digest: digest of the proposed models; "": the former champion is to come back.
        former: digest of the models that were in use at that time.
        change: edits of the models, as in a file of edits.
    """

    at: float
    by: str
    why: str
    digest: str = ""
    former: str = ""
    change: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How proposed models compare with the champion (the models in use).

    Attributes:
        at: when they were judged, seconds since the epoch.
        version: version of the model in the registry.
        better: whether they are better beyond chance in one figure, and worse in none.
        reason: the result as one line. compared: a line for each figure.
        outlook: what a judgement on more jobs may show; "": the result is final.
        looks: how often they were judged, each time on all jobs since.
        error: why they could not be judged; "": they were.
    """

    at: float
    version: str = ""
    better: bool = False
    reason: str = ""
    compared: Sequence[str] = ()
    outlook: str = ""
    looks: int = 1
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An operator's request to promote a proposal: when, by whom, why, and whether also if it is
    not better (`anyway`).
    """

    at: float
    by: str
    why: str = ""
    anyway: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a promotion ended. `error`: why it failed; "": the proposed models are in use now."""

    at: float
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposal and its parts so far; a part that was not written yet is None."""

    name: str
    folder: Path = field(repr=False)
    proposed: Proposed
    judged: Judged | None = None
    wanted: Wanted | None = None
    done: Done | None = None

    @property
    def back(self) -> bool:
        """Return whether the proposal asks for the former champion (the models in use before) to
        come back.
        """
        return not self.proposed.digest

    @property
    def state(self) -> str:
        """Return how far the proposal is: "judging", "unjudged" (judging failed), "better", "not
        yet" (it is judged again in a week), "not better", "promoting", "promoted" or "failed".
        """
        if self.done is not None:
            return "failed" if self.done.error else "promoted"
        if self.wanted is not None:
            return "promoting"
        if self.judged is None:
            return "judging"
        if self.judged.error or self.judged.better:
            return "unjudged" if self.judged.error else "better"
        return "not yet" if self.again_at is not None else "not better"

    @property
    def again_at(self) -> float | None:
        """Return when the proposal is to be judged again, seconds since the epoch; None: it is
        not.
        """
        found = self.judged
        if found is None or found.error or found.better or self.wanted is not None:
            return None
        if not found.outlook or found.looks >= LOOKS:
            return None
        return found.at + WEEK_S


class Proposals:
    """All proposals of a service, in its state folder."""

    def __init__(self, state_dir: Path):
        self.folder = state_dir / FOLDER

    def propose(
        self,
        bundle: Bundle,
        former: str,
        change: Sequence[Mapping[str, Any]],
        *,
        by: str,
        why: str,
        now: float,
    ) -> Proposal:
        """Store models as a proposal, and return the proposal. `former`: digest of the models in
        use; `change`: the edits that made the new models. Raise NoProposal where a proposal of the
        same models is still open, or `why` is empty or no single line of printable text.
        """
        _check_why(why)
        same = (one for one in self.each() if one.proposed.digest == bundle.digest)
        if any(not one.done and one.state != "unjudged" for one in same):
            raise NoProposal("The same models are proposed already.")
        name = _new_name(now, bundle.digest)
        bundle.save(self.folder / name / BUNDLE)
        asked = Proposed(
            at=now,
            by=by,
            why=why.strip(),
            digest=bundle.digest,
            former=former,
            change=[{**one, "on": str(one.get("on", ""))} for one in change],
        )
        write(self.folder / name / PROPOSED, asked)
        return self.one(name)

    def go_back(self, *, by: str, why: str, now: float) -> Proposal:
        """Store the request to return to the former champion (the models in use before) as a
        proposal, and return the proposal. Raise NoProposal where such a proposal is still open, or
        `why` is empty or more than one line.
        """
        _check_why(why)
        if any(one.back and not one.done for one in self.each()):
            raise NoProposal("That is asked for already.")
        name = _new_name(now, "0" * 8)
        # without PROPOSED it is none yet: nothing takes it for one that is to be judged
        write(self.folder / name / WANTED, Wanted(at=now, by=by, why=why.strip()))
        write(self.folder / name / PROPOSED, Proposed(at=now, by=by, why=why.strip()))
        return self.one(name)

    def promote(self, name: str, *, by: str, why: str, anyway: bool, now: float) -> None:
        """Ask for a proposal to become champion (the models in use). Raise NoProposal where it is
        not judged, its promotion was asked for already, or it is not better and `anyway` with a
        `why` is not given.
        """
        found = self.one(name)
        if why.strip():
            _check_why(why)
        if found.judged is None or found.judged.error or found.wanted is not None:
            raise NoProposal("It has not been judged, or is promoted already.")
        if not found.judged.better and not (anyway and why.strip()):
            raise NoProposal("It is not better beyond chance: promote it anyway, and say why.")
        write(found.folder / WANTED, Wanted(at=now, by=by, why=why.strip(), anyway=anyway))

    def one(self, name: str) -> Proposal:
        """Return the proposal called `name`. Raise NoProposal where there is none."""
        folder = self.folder / name
        if WORD.fullmatch(name):
            proposed = _read(folder / PROPOSED, Proposed)
            if proposed is not None:
                return Proposal(
                    name=name,
                    folder=folder,
                    proposed=proposed,
                    judged=_read(folder / JUDGED, Judged),
                    wanted=_read(folder / WANTED, Wanted),
                    done=_read(folder / DONE, Done),
                )
        raise NoProposal("There is no such proposal.")

    def each(self) -> list[Proposal]:
        """Return all proposals, the latest first. One that cannot be read is left out."""
        try:
            names = [one.name for one in self.folder.iterdir() if WORD.fullmatch(one.name)]
        except OSError:
            return []
        names.sort(key=lambda name: -int(name.partition("-")[0]))
        found = []
        for name in names:
            with suppress(NoProposal):
                found.append(self.one(name))
        return found


def _new_name(now: float, digest: str) -> str:
    return f"{int(now)}-{digest[:8]}-{secrets.token_hex(4)}"


def _check_why(why: str) -> None:
    """Raise NoProposal where `why` is empty, or has control characters, as in a second line."""
    if not why.strip():
        raise NoProposal("Say why: it is kept with the models.")
    if not why.strip().isprintable():
        raise NoProposal("Say why in one line of text, without control characters.")


def write(path: Path, what: Proposed | Judged | Wanted | Done) -> None:
    """Write a part of a proposal to its file in one step, so that no reader finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(asdict(what)), durable=True)


def _read(path: Path, kind: type[T]) -> T | None:
    """Return a part of a proposal from its file. Return None where the file is missing or cannot be
    read.
    """
    try:
        return kind(**json.loads(read_text(path)))
    except (OSError, ValueError, TypeError):
        return None
