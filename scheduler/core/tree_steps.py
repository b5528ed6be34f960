"""The steps through a decision tree that predicts how two jobs share a GPU, as text: so decisions
record them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

MISSING = "missing, taken as"  # as `models.bundle.tree` writes it
WITHHELD = "not shown"
_ASSUMED = "not watched yet: taken to be as {} usually are"
_OWNERS, _ANYBODYS = map(_ASSUMED.format, ("its user's jobs", "jobs here"))
# features of a pair: who knows one of the two jobs could work out the other's
OF_BOTH = (
    "gpu_util_minus_partner_pct",
    "gpu_util_sum_pct",
    "gpu_mem_util_sum_pct",
    "sm_active_sum_pct",
)
_NUMBER = r"-?\d[\d.e+-]*"
_PARTNER = "partner: "
_CORRECTED = "corrected by pairs that ran: "
SCORES = ("tiny", "medium", "jumbo")  # the sharing scores, 0 to 2
_SCORE = re.compile(r"sharing score (\d) \(\w+\)")
_SPEED = re.compile(rf"({_CORRECTED})?speed ({_NUMBER})")
_COMPARED = re.compile(rf"(\w+) ({_NUMBER}|{MISSING}|{WITHHELD}) (<=|>) ({_NUMBER})")


@dataclass(frozen=True, slots=True)
class TreeStep:
    """A step on the way to a sharing score or a pair's speed, as a decision records it.

    Attributes:
        of_partner: whether the step is about the partner's features, instead of those of the
            newcomer.
        text: the step as it was written, without the prefix that names the partner.
        score: the sharing score, if this is the last step of a path to a score; otherwise None.
        speed: the speed beside the other job, if this is the last step of a path to a speed;
            otherwise None.
        compared: name of the compared feature, its value (None: missing), whether it is at most the
            cut, and the cut; None: the step compares nothing.
        withheld: whether the compared value is not shown to this reader.
        corrected: whether the speed was corrected by measured speeds of pairs.
        assumed: whether the step says that the job's profile was assumed, from the usual profile
            of similar jobs.
    """

    of_partner: bool
    text: str
    score: int | None = None
    speed: float | None = None
    compared: tuple[str, float | None, bool, float] | None = None
    withheld: bool = False
    corrected: bool = False
    assumed: bool = False

    def __str__(self) -> str:
        return f"{_PARTNER}{self.text}" if self.of_partner else self.text

    @classmethod
    def of(cls, written: str) -> TreeStep:
        """Return the step from its text, as `str` writes it."""
        text = written.removeprefix(_PARTNER)
        of_partner = text != written
        if found := _SCORE.fullmatch(text):
            return cls(of_partner, text, score=int(found[1]))
        if found := _SPEED.fullmatch(text):
            return cls(of_partner, text, speed=float(found[2]), corrected=found[1] is not None)
        if found := _COMPARED.fullmatch(text):
            name, seen, sign, cut = found.groups()
            value = None if seen in (MISSING, WITHHELD) else float(seen)
            compared = name, value, sign == "<=", float(cut)
            return cls(of_partner, text, compared=compared, withheld=seen == WITHHELD)
        return cls(of_partner, text, assumed=text in (_OWNERS, _ANYBODYS))

    @property
    def ends(self) -> bool:
        """Whether the step is the last one of its path: a score or a speed."""
        return self.score is not None or self.speed is not None

    def without_value(self) -> TreeStep:
        """Return the step without its compared value, if that value comes from both jobs, so that
        the reader does not learn about the other one. Otherwise return the step as it is."""
        if self.compared is None or self.compared[0] not in OF_BOTH:
            return self
        name, _, at_most, cut = self.compared
        text = f"{name} {WITHHELD} {'<=' if at_most else '>'} {cut:.6g}"
        return replace(self, text=text, compared=(name, None, at_most, cut), withheld=True)


def speed_step(speed: float) -> str:
    """Return, as text, the last step of a path that led to a speed."""
    return f"speed {speed:.6g}"


def corrected_step(speed: float) -> str:
    """Return, as text, the last step of a path whose predicted speed was corrected by measured
    speeds of pairs: `corrected by pairs that ran: speed 0.54`."""
    return f"{_CORRECTED}{speed_step(speed)}"


def assumed_step(*, of_owner: bool) -> str:
    """Return, as text, the step which says that a job's profile was assumed: the usual one of its
    owner's jobs, or of all jobs."""
    return _OWNERS if of_owner else _ANYBODYS
