"""Shows a story (what happened to a job, and why) on a terminal, or as JSON."""

from __future__ import annotations

import math

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from features.codec import Json
from scheduler.core.plural import count
from scheduler.explain.life import Event, Sharing
from scheduler.explain.remarks import remarks
from scheduler.explain.story import (
    PRINCIPAL_REASONS,
    STEPS,
    Story,
    checked_words,
    held_words,
    sharing_words,
)
from scheduler.explain.terms import (
    EVERY_JOB,
    Breakdown,
    drawn,
    factor_of,
    reasons,
    seconds_of,
)
from scheduler.explain.words import (
    act,
    clock,
    duration,
    factor,
    moment,
    overtaken_words,
    percent,
    phrase,
)

PLAIN_WIDTH = 120


def show(story: Story, console: Console, *, codes: bool = False) -> None:
    """Print a whole story. With `codes`, also print codes of reasons and names as recorded."""
    job = story.job
    console.print(f"[bold]{escape(story.headline)}[/]", soft_wrap=not console.is_terminal)
    details = [f"submitted {moment(job.submit_time, zone=True)}"]
    if job.user:
        details.append(f"user {job.user}")
    if job.name:
        details.append(f"name {job.name}")
    if story.policy:
        details.append(f"policy {story.policy}")
    console.print(escape(" · ".join(details)), style="dim")
    for problem in story.problems:
        console.print(f"[bold red]Contradiction:[/] {escape(problem)}")
    _show_waits(story, console, codes)
    _show_events(story, console, codes)
    for breakdown in drawn(story.scores):
        _show_score(breakdown, console)
    for sharing in story.sharing:
        _show_sharing(sharing, console)
    section(console, "Estimate", [story.estimate])
    section(console, "How it ended", list(story.ending))
    if story.checked and not story.problems:
        section(console, "Checked", [checked_words(story)])
    section(console, "Not examined", list(story.limits))


def plain_console(console: Console) -> Console:
    """Return the console itself if it is a terminal, otherwise a wide one without colours, for a
    pipe."""
    if console.is_terminal:
        return console
    return Console(file=console.file, width=PLAIN_WIDTH, no_color=True, highlight=False)


def section(console: Console, title: str, lines: list[str]) -> None:
    """Print lines of text under a title."""
    console.print(f"\n[bold]{title}[/]")
    for line in lines:
        console.print(Padding(escape(line), (0, 0, 0, 2), expand=False))


def _table(*headers: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for i, header in enumerate(headers):
        table.add_column(header, justify="right" if i in right else "left", overflow="fold")
    return table


def _show_waits(story: Story, console: Console, codes: bool) -> None:
    if not story.waits:
        return
    began = "what stood in the way as the longest period began"
    table = _table("reason", "for", "share", "periods", began, right=(1, 2, 3))
    for wait in story.waits[:PRINCIPAL_REASONS]:
        sentence = wait.sentence + (f" → {wait.next_step}" if wait.next_step else "")
        table.add_row(
            wait.reason.value if codes else phrase(wait.reason.value),
            duration(wait.seconds),
            percent(wait.share),
            str(wait.spells),
            escape(sentence),
        )
    others = story.waits[PRINCIPAL_REASONS:]
    if others:
        seconds = sum(w.seconds for w in others)
        table.add_row(count(len(others), "more reason"), duration(seconds), "", "", "")
    console.print("\n[bold]What it waited for[/]")
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    notes = (*held_words(story.held, story.job.vc), overtaken_words(story.overtaken), *story.foil)
    for line in filter(None, notes):
        console.print(Padding(escape(line), (0, 0, 0, 2), expand=False))


def _show_events(story: Story, console: Console, codes: bool) -> None:
    table = _table("time (UTC)", "since submit", "decision", "why", right=(1,))
    for event, more in remarks(story.events, story.job.time_limit_s, codes=codes):
        d = event.decision
        text = "\n".join([escape(event.sentence), *(f"[dim]{escape(line)}[/]" for line in more)])
        table.add_row(
            moment(d.time),
            clock(event.since_submit_s),
            act(d.action) + f" {d.reason.value}" * codes + "\n(free profiling)" * event.free_pass,
            text,
        )
    console.print(f"\n[bold]Decisions[/] ({len(story.events)})")
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _show_score(breakdown: Breakdown, console: Console) -> None:
    table = _table("term", "value", "adds to ln", "factor", right=(2, 3))
    start = seconds_of(breakdown.intercept)
    table.add_row(EVERY_JOB, "", f"{breakdown.intercept:.4f}", duration(start))
    for term in breakdown.leading():
        table.add_row(
            escape(term.text),
            escape(term.value),
            f"{term.contribution:+.4f}",
            factor(term.factor),
        )
    folded, together = breakdown.rest()
    if folded:
        table.add_row(
            f"{count(folded, 'more term')} together",
            "",
            f"{together:+.4f}",
            factor(factor_of(together)),
        )
    end = seconds_of(breakdown.score)
    table.add_row("= the prediction", "", f"{breakdown.score:.4f}", duration(end))
    model = f"model {breakdown.bundle[:12]}" if breakdown.bundle else "model not named"
    title = f"Why it was predicted to run {duration(end)}"
    console.print(f"\n[bold]{title}[/] (as of {moment(breakdown.time)}, {escape(model)})")
    if breakdown.terms_known and (why := reasons(breakdown)):
        from_all = (
            f"{why[:1].upper()}{why[1:]}. In full, the duration in the first row, times each "
            "term's factor:"
        )
        console.print(Padding(escape(from_all), (0, 0, 0, 2), expand=False))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _show_sharing(sharing: Sharing, console: Console) -> None:
    section(console, "Shared GPUs", list(sharing_words(sharing)))
    if sharing.tree_path:
        console.print(f"  [dim]{STEPS}[/]")
    for step in sharing.tree_path:
        console.print(Padding(escape(step), (0, 0, 0, 4), expand=False))


# --- JSON ----------------------------------------------------------------------------------------


def as_plain(story: Story) -> Json:
    """Return a story as plain JSON: times in seconds since the epoch, null for unknown values."""
    job = story.job
    return {
        "job": {name: getattr(job, name) for name in job.__dataclass_fields__},
        "policy": story.policy or None,
        "headline": story.headline,
        "waited_s": story.waited_s,
        "waits": [
            {
                "reason": w.reason.value,
                "seconds": w.seconds,
                "share": w.share,
                "spells": w.spells,
                "sentence": w.sentence,
                "next_step": w.next_step or None,
            }
            for w in story.waits
        ],
        "held": [
            {name: getattr(one, name) for name in one.__dataclass_fields__} for one in story.held
        ],
        "overtaken": dict(story.overtaken),
        "why_after": list(story.foil),
        "decisions": [_event_json(event) for event in story.events],
        "spans": [
            {"phase": s.phase.value, "reason": s.reason.value, "start": s.start, "end": s.end}
            for s in story.spans
        ],
        "scores": [_score_json(b) for b in story.scores],
        "sharing": [
            {
                "partner": s.partner,
                "newcomer": s.newcomer,
                "start": s.start,
                "end": s.end,
                "predicted_speed": s.speeds and s.speeds[0],
                "predicted_partner_speed": s.speeds and s.speeds[1],
                "tree_path": list(s.tree_path),
            }
            for s in story.sharing
        ],
        "estimate": story.estimate,
        "ending": list(story.ending),
        "checked": {"decisions": story.checked, "largest_gap": story.worst_gap},
        "problems": list(story.problems),
        "not_examined": list(story.limits),
    }


def _event_json(event: Event) -> Json:
    d = event.decision
    return {
        "seq": d.seq,
        "time": d.time,
        "since_submit_s": event.since_submit_s,
        "action": d.action.value,
        "reason": d.reason.value,
        "sentence": event.sentence,
        "next_step": event.next_step or None,
        "evidence": event.evidence,
        "priority": d.priority,
        "estimate_s": d.estimate_s,
        "score": d.score and d.score.value,
        "beside_the_clock": event.free_pass,
    }


def _score_json(breakdown: Breakdown) -> Json:
    return {
        "bundle": breakdown.bundle,
        "decisions": list(breakdown.seqs),
        "score": breakdown.score,
        "intercept": breakdown.intercept,
        "adds_up": breakdown.adds_up,
        "gap": breakdown.gap if math.isfinite(breakdown.gap) else None,
        "terms": [
            {
                "name": t.name,
                "text": t.text,
                "value": t.value or None,
                "contribution": t.contribution,
                "factor": t.factor,
            }
            for t in breakdown.terms
        ],
        "reasons": [
            {"text": t.text, "contribution": t.contribution, "terms": list(t.terms)}
            for t in breakdown.thoughts()
        ],
    }
