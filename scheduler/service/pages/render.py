"""What all pages share: templates, the files that browsers load, and the frame around the
content.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from scheduler.charts.drift import alarm_words
from scheduler.explain import words

MENU = (
    ("/", "Now"),
    ("/list", "Jobs"),
    ("/causes", "Why they wait"),
    ("/nodes", "Nodes"),
    ("/history", "History"),
    ("/fairness", "Fairness"),
    ("/models", "Models"),
    ("/forecasts", "Forecasts"),
)
_OWN = (
    "style.css", "app.js", "times.js", "watch.js", "charts.js", "edit.js", "icon.svg",
    "vendor/htmx.min.js", "vendor/vega.min.js",
)  # fmt: skip
_MACROS = {
    "parts": "_parts.html", "drawn": "_timeline.html", "of": "_job.html", "grouped": "_groups.html"
}  # fmt: skip
_FILTERS = ("duration", "clock", "moment", "number", "factor", "percent", "count", "listed")


@dataclass(frozen=True)
class Asset:
    """A file that pages load, ready to be sent.

    Attributes:
        zipped: the content, compressed by gzip.
        mark: text that changes with the content; part of the file's address, so that browsers can
            cache it for good.
    """

    content: bytes
    zipped: bytes
    media_type: str
    mark: str


@dataclass(frozen=True)
class Frame:
    """The frame around the content of a page.

    Attributes:
        base: path under which the service is reached, "" at the root.
        here: path of the page in the menu; "" for none.
        viewer: name and role of the reader, as shown; "" when nobody is logged in.
        live: address of the stream of changes, ending in its query; "" for none.
        seq: last event in the log when the page was made.
        may_leave: whether there is a session to log out of.
        sign_out: address at which the site's proxy signs out a reader whom it signed in; "" for
            others.
        bundle: digest of the models in use.
        guest: description of a reader who came by a shared link, as shown; "" for others.
        made_at: when the page was made, seconds since the epoch.
        silent: which parts of the followed Slurm do not answer, a sentence each.
    """

    base: str
    here: str = ""
    viewer: str = ""
    live: str = ""
    seq: int = 0
    may_leave: bool = False
    bundle: str = ""
    made_at: float = 0.0
    guest: str = ""
    silent: Sequence[str] = ()
    sign_out: str = ""

    menu = MENU

    @property
    def release(self) -> str:
        return _release()


@cache
def environment() -> Environment:
    """Return the template environment of this package. All values are escaped, and an undefined
    name is an error.
    """
    env = Environment(
        loader=PackageLoader("scheduler.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in _FILTERS:
        env.filters[name] = getattr(words, name)
    env.filters["gain_words"] = words.gain_words
    env.filters["alarm_words"] = alarm_words
    return env


def render(template: str, frame: Frame, part: str = "", **values: Any) -> str:
    """Return the HTML of a page, or of one named part of it (a block of the template). `values`:
    the template's variables.
    """

    def asset(name: str) -> str:
        return f"{frame.base}/static/{name}?v={assets()[name].mark}"

    found = environment().get_template(template)
    # not imported by templates: a part alone is rendered without what stands outside its block
    named = {
        "parts": "_parts.html",
        "charts": "_charts.html",
        "drawn": "_timeline.html",
        "of": "_job.html",
        "grouped": "_groups.html",
    }
    macros = {name: environment().get_template(file).module for name, file in named.items()}
    everything = {"page": frame, "asset": asset, "silent": silent(frame), **macros, **values}
    if part and part in found.blocks:
        context = found.new_context(everything)
        beside = str(silent(frame, of_part=True))  # htmx puts it where it belongs
        return "".join(found.blocks[part](context)) + beside
    return found.render(everything)


def silent(frame: Frame, *, of_part: bool = False) -> Markup:
    """Return the note at the top of every page that names which parts of Slurm do not answer;
    empty where all do."""
    text = Markup().join(
        Markup('<p class="problem" role="alert">{}</p>').format(line) for line in frame.silent
    )
    swap = Markup(' hx-swap-oob="true"') if of_part else Markup()
    return Markup('<div id="silent"{}>{}</div>').format(swap, text)


@cache
def assets() -> dict[str, Asset]:
    """Return every file that pages load, by name. No other name is ever looked up on disk."""
    own = files("scheduler.service.pages").joinpath("static")
    return {name: _asset(name, own) for name in _OWN}


def _asset(name: str, folder: Traversable) -> Asset:
    packed = folder.joinpath(f"{name}.gz")
    zipped = packed.read_bytes() if packed.is_file() else b""
    content = gzip.decompress(zipped) if zipped else folder.joinpath(name).read_bytes()
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
    mark = hashlib.sha256(content).hexdigest()[:10]
    return Asset(
        content, zipped or gzip.compress(content, 6, mtime=0), f"{kind}; charset=utf-8", mark
    )


@cache
def _release() -> str:
    try:
        return version("pellucid")
    except PackageNotFoundError:
        return "unknown"
