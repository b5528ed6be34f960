"""Job templates: kinds of jobs that a user submits again and again.

A template is a user's normalised job name; names that are nearly alike are one template. If names
are hidden, as in some traces, it is the request: (GPUs, CPUs). If users are hidden, templates
belong to the virtual cluster. There is no template if only the number of GPUs is known of a job.
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
    """The histories of jobs by (user, template), at most PER_USER per user: the least recently used
    are dropped."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], OrderedDict[Template, KeyHistory]] = {}

    def find(self, job: Job) -> KeyHistory | None:
        """Return the history of a job's template, or None if the template is new. Nothing
        changes."""
        book = self._owners.get(_owner(job))
        if not book:
            return None
        return book.get(self._key(job, book))

    def assign(self, job: Job) -> KeyHistory:
        """Return the history of a job's template, created if the template is new, and record it as
        the latest used."""
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
        """Return the key of a job's template in `book`, the owner's templates; a new key if none
        fits."""
        return _template(job, book)


class CommandBook(TemplateBook):
    """The histories of jobs by (user, command), for jobs with a known command."""

    @staticmethod
    def _key(job: Job, book: OrderedDict[Template, KeyHistory]) -> Template:
        return job.like


class NameBook(TemplateBook):
    """The histories of jobs by (user, job name with its numbers), for jobs that have a name."""

    @staticmethod
    def _key(job: Job, book: OrderedDict[Template, KeyHistory]) -> Template:
        return job.name[:MAX_LENGTH]


def has_template(job: Job) -> bool:
    """Return whether a job has a user, a name or a number of CPUs. Without any of them, it cannot
    be distinguished from other jobs of its virtual cluster.
    """
    return bool(job.user or job.name) or job.cpus is not None


def _owner(job: Job) -> tuple[str, str]:
    """Return the owner of a job's template: (user, "") if the job has a user, otherwise ("",
    VC)."""
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
