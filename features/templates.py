"""Job templates: the things a user submits again and again.

A template is the user's normalised job name, names nearly alike being one template; where names
are empty, as in traces that hide them, it is what the user asked for: (GPUs, CPUs). Where users are
hidden, it is one of the VC's, and there is none where GPUs are all that is known of a job.
"""

from __future__ import annotations

from collections import OrderedDict

from features.alike_texts import most_alike
from features.history import KeyHistory
from features.job import Job
from features.names import MAX_LENGTH, normalise

# Templates remembered per user; beyond it the one longest unused is forgotten.
PER_USER = 64
# Names at least this alike (0-100, normalised indel similarity) are one template.
SIMILARITY = 90.0

Template = str | tuple[int, float | None]


class TemplateBook:
    """Histories by (user, template), at most PER_USER of them per user."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], OrderedDict[Template, KeyHistory]] = {}

    def find(self, job: Job) -> KeyHistory | None:
        """Return the history of a job's template, or None when it is new. Nothing is changed."""
        book = self._owners.get(_owner(job))
        if not book:
            return None
        return book.get(self._key(job, book))

    def assign(self, job: Job) -> KeyHistory:
        """Return the history of a job's template, created when it is new, and mark it as just
        used.
        """
        book = self._owners.setdefault(_owner(job), OrderedDict())
        template = self._key(job, book)
        history = book.get(template)
        if history is None:
            history = book[template] = KeyHistory()
            if len(book) > PER_USER:
                book.popitem(last=False)
        else:
            book.move_to_end(template)
        return history

    @staticmethod
    def _key(job: Job, book: OrderedDict[Template, KeyHistory]) -> Template:
        """Return the template that a job belongs to; a new one where none of its owner's fits."""
        return _template(job, book)


class CommandBook(TemplateBook):
    """Histories by (user, command): of jobs whose command is known."""

    @staticmethod
    def _key(job: Job, book: OrderedDict[Template, KeyHistory]) -> Template:
        return job.like


class NameBook(TemplateBook):
    """Histories by (user, job name), numbers and all: of jobs that have a name."""

    @staticmethod
    def _key(job: Job, book: OrderedDict[Template, KeyHistory]) -> Template:
        return job.name[:MAX_LENGTH]


def has_template(job: Job) -> bool:
    """Return whether a job has a user, a name or a number of CPUs. Without any of them, it cannot
    be distinguished from other jobs of its virtual cluster.
    """
    return bool(job.user or job.name) or job.cpus is not None


def _owner(job: Job) -> tuple[str, str]:
    """Return (user, "") of a job with a user, otherwise ("", VC): the owner of its template."""
    return (job.user, "") if job.user else ("", job.vc)


def _template(job: Job, book: OrderedDict[Template, KeyHistory]) -> Template:
    name = normalise(job.name) if job.name else ""
    if not name:
        return (job.gpus, job.cpus)
    if name in book:
        return name
    # A newcomer joins the founder it resembles most; founders stay, so groups do not drift.
    known = [template for template in book if isinstance(template, str)]
    return most_alike(name, known, SIMILARITY) or name
