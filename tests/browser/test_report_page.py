"""The report in a browser: hovered, filtered, sorted, by keyboard alone, and asking nobody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Request, expect

from pipeline import runs
from pipeline.demo.first import ERRORS, PREBUILT
from pipeline.replay.page import render
from pipeline.replay.runs import VARIANTS, replay
from pipeline.replay.site import read_site
from pipeline.report import month
from pipeline.report.build import Inputs, build
from pipeline.stages.common import read_params
from pipeline.traces.synthetic import generate as synthetic
from pipeline.worlds import open_scenario
from scheduler.explain.words import duration
from tests.browser.conftest import shoot, window
from tests.browser.test_each_page import _reached
from tests.browser.test_walk import accessible, fits
from tests.pipeline.test_replay import dump
from tests.pipeline.test_report import METRICS, a_bundle

FIGURES = ("average", "jct", "tail", "groups", "jobs")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report and a page of a replay, written to files."""
    folder = tmp_path_factory.mktemp("pages")
    synthetic.write(synthetic.default_config("small"), folder / "trace")
    world = open_scenario(folder / "trace", durations="own")
    runs.compare(lambda _: world, ["fifo", "srtf", "pellucid"], [0], out=folder / "runs")
    a_bundle().save(folder / "bundle")
    (folder / "metrics.json").write_text(json.dumps(METRICS))
    given = (folder / name for name in ("runs", "bundle", "trace", "metrics.json"))
    report = folder / "report.html"
    report.write_text(build(Inputs(*given)).html)
    site = read_site(dump(folder / "dump.txt"), folder)
    variants = [v for v in VARIANTS if v.key in ("slurm", "pellucid")]
    savings = folder / "savings.html"
    savings.write_text(render(site, replay(site, 1, variants=variants)))
    return {"report": report, "savings": savings}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with all that `make demo` shows: its policies, draws, models and errors."""
    folder = tmp_path_factory.mktemp("demo")
    synthetic.write(synthetic.default_config("small"), folder / "trace")
    world = open_scenario(folder / "trace", durations="own")
    asked = read_params().simulate
    runs.compare(lambda _: world, asked.policies, range(5), out=folder / "runs")
    points = [{"jobs": n, "mae_log10": 0.7, "avg_jct_s": 9e4, "avg_jct_each_s": [9e4, 8e4, 9e4]}
              for n in (0, 2_000, 5_000)]  # fmt: skip
    learning = folder / "learning.json"
    learning.write_text(json.dumps({"points": points}))
    given = folder / "runs", PREBUILT / "bundle", folder / "trace", PREBUILT / ERRORS, learning
    report = folder / "demo.html"
    report.write_text(build(Inputs(*given, tried=2, public=True)).html)
    return report


@pytest.fixture
def asked() -> list[str]:
    """Addresses that pages asked for."""
    return []


@pytest.fixture(params=[(1400, "light"), (390, "dark")], ids=["1400", "390"])
def page(request: pytest.FixtureRequest, browser: Browser, asked: list[str]) -> Iterator[Page]:
    """A window in which no script fails and no request leaves the page."""
    width, scheme = request.param
    context = window(
        browser,
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    wrong: list[str] = []

    def requested(one: Request) -> None:
        asked.append(one.url)

    context.on("request", requested)
    opened = context.new_page()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    yield opened
    context.close()
    assert not wrong, wrong
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]


def _open(page: Page, path: Path) -> None:
    page.goto(path.as_uri())
    page.locator("details").evaluate_all("folds => folds.forEach((fold) => { fold.open = true; })")
    for name in FIGURES:
        expect(page.locator(f"[data-figure={name}] .drawing svg").first).to_be_visible()


@pytest.mark.parametrize("name", ["report", "savings"])
def test_it_fits_and_is_accessible(made: dict[str, Path], page: Page, name: str) -> None:
    _open(page, made[name])
    wide = page.viewport_size["width"] if page.viewport_size else 0
    fits(page, name)
    accessible(page, name)
    _reached(page, name)
    shoot(page, f"{name}-{wide}")
    page.emulate_media(media="print")
    expect(page.locator("[data-figure=jobs]")).to_be_hidden()
    expect(page.locator("form.filter").first).to_be_hidden()


def test_the_report_is_short(demo: Path, page: Page) -> None:
    """Words that are seen, and heights in px; what asks one's own history is seen at once."""
    page.goto(demo.as_uri())
    expect(page.locator(".drawing svg").first).to_be_visible()
    wide = page.viewport_size["width"] if page.viewport_size else 0
    words = len(page.locator("body").inner_text().split())
    height = page.evaluate("document.documentElement.scrollHeight")
    assert words <= 1_200
    assert height <= {1400: 4_000, 390: 6_000}[wide]
    first = page.evaluate("document.querySelector('#jobs').getBoundingClientRect().top")
    assert first <= {1400: 720, 390: 980}[wide]
    expect(page.locator(".own .install")).to_have_text(month.INSTALL)
    own = page.locator(".own code:not(.install)")
    expect(own).to_have_text(month.OWN)
    expect(own).to_be_in_viewport(ratio=1)
    fits(page, "demo")
    cut = page.evaluate(
        """[...document.querySelectorAll(".drawing svg text, .scroll")].filter((one) => {
             const { right } = one.getBoundingClientRect();
             const within = (one.ownerSVGElement ?? document.body).getBoundingClientRect().right;
             const scrolls = !one.ownerSVGElement && one.scrollWidth > one.clientWidth;
             return one.checkVisibility() && (right > within + 1 || scrolls);
           }).map((one) => one.textContent.trim().slice(0, 40))"""
    )
    assert not cut
    shoot(page, f"demo-{wide}")


def test_what_is_pointed_at_is_told(made: dict[str, Path], page: Page) -> None:
    _open(page, made["report"])
    assert page.locator("[data-chart] .drawing svg").count() == page.locator("[data-chart]").count()
    bar = page.locator("[data-figure=average] .mark-rect path").first
    bar.scroll_into_view_if_needed()
    bar.hover(force=True)
    told = page.locator("[data-figure=average] .tip")
    expect(told).to_contain_text("average JCT")


def test_names_in_figures_are_text(made: dict[str, Path], page: Page, tmp_path: Path) -> None:
    """A chart library made a link of a tag in one."""
    html = made["report"].read_text()
    name = json.loads(re.findall(r'"vcs": ?(\[.*?\])', html)[0])[0]
    odd = json.dumps('<a href="https://example.org/x">click</a>').replace("<", "\\u003c")
    renamed = re.sub(r'("vcs": ?\[)"' + re.escape(name) + '"', lambda m: m[1] + odd, html)
    assert renamed != html
    (tmp_path / "odd.html").write_text(renamed)
    _open(page, tmp_path / "odd.html")
    expect(
        page.locator("[data-figure=groups] .role-axis-label text").filter(has_text="href=")
    ).to_have_count(1)
    expect(page.locator("[data-figure] svg a")).to_have_count(0)


def test_a_filter_holds_for_the_figures(made: dict[str, Path], page: Page) -> None:
    _open(page, made["report"])
    before = _drawn(page)
    page.get_by_label("virtual cluster").first.select_option(index=1)
    expect(page.locator("form.filter output")).not_to_contain_text("600 of 600")
    filtered = _drawn(page)
    assert all(filtered[name] != before[name] for name in FIGURES)
    page.get_by_label("GPUs asked for").first.select_option(label="1 GPU")
    assert _drawn(page)["jct"] != filtered["jct"]
    names = page.locator("[data-figure=average] .role-axis-label text")
    expect(names).to_have_count(3)
    page.get_by_label("fifo", exact=True).uncheck()
    expect(names).to_have_count(2)


def test_what_a_filtered_figure_draws_is_what_the_jobs_say(
    made: dict[str, Path], page: Page
) -> None:
    """Of one virtual cluster and one GPU: what each mark stands for, where it is and how it is
    named, against the page's own rows, counted here again.
    """
    _open(page, made["report"])
    text = re.search(r'id="columns"[^>]*>(.*?)</script>', made["report"].read_text(), re.DOTALL)
    of = json.loads(text[1]) if text else {}
    for vc, gpus in (("", ""), (0, ""), (1, 1)):
        page.locator("form.filter select[name=vc]").select_option(value=str(vc))
        size = next((i for i, (_, low, _) in enumerate(of["sizes"]) if low == gpus), "")
        page.locator("form.filter select[name=size]").select_option(value=str(size))
        _, low, high = of["sizes"][size] if gpus else ("", 0, 1e9)
        jobs = [
            i
            for i, n in enumerate(of["gpus"])
            if low <= n <= high and of["vc"][i] in (vc, *of["vc"] * (vc == ""))
        ]
        assert len(jobs) > 20
        jct, wait = (
            {one["name"]: [one[of_what][i] for i in jobs] for one in of["results"]}
            for of_what in ("jct", "wait")
        )
        drawn = {name: _marks(page, name) for name in FIGURES}

        bars = {one["name"]: one for one in drawn["average"]}
        assert bars.keys() == jct.keys()
        means = {name: float(np.mean(times)) for name, times in jct.items()}
        for name, bar in bars.items():
            assert bar["mean"] == pytest.approx(means[name])
            assert bar["tip"] == f"{name}: average JCT {duration(means[name])}"
            wide = bar["width"] / max(one["width"] for one in bars.values())
            assert wide == pytest.approx(means[name] / max(means.values()), abs=0.01)
        for figure, times in (("jct", jct), ("tail", wait)):
            for name, values in times.items():
                points = [one for one in drawn[figure] if one["name"] == name]
                shares = [1 - one["share"] if figure == "tail" else one["share"] for one in points]
                found = [one["value"] for one in points]
                assert len(points) > 10
                assert found == pytest.approx(np.quantile(values, shares).tolist(), abs=1e-6), name
        groups = {(one["by"], one["group"], one["name"]): one for one in drawn["groups"]}
        parts = {of["vcs"][of["vc"][i]] for i in jobs}
        assert {group for by, group, _ in groups if by == "of_vc"} == parts
        for (by, group, name), dot in groups.items():
            waits = [
                w
                for i, w in zip(jobs, wait[name], strict=True)
                if group == (of["vcs"][of["vc"][i]] if by == "of_vc" else _size(of, of["gpus"][i]))
            ]
            assert (dot["n"], dot["mean"]) == (len(waits), pytest.approx(np.mean(waits)))
        under = of["results"][int(page.locator("select[name=under]").input_value())]
        dots = sorted((one["i"], one["wait"]) for one in drawn["jobs"])
        assert dots == [(i, under["wait"][i]) for i in jobs]


def _marks(page: Page, figure: str) -> list[dict[str, Any]]:
    """What each bar and point of a figure was made from, and how wide a bar is."""
    found: list[dict[str, Any]] = page.locator(f"[data-figure={figure}] .drawing").evaluate(
        """(box) => [...box.querySelectorAll(".mark-rect path, .mark-symbol path")]
             .filter((one) => !one.closest(".role-legend"))
             .map((one) => ({ ...one.__data__.datum, width: one.__data__.width }))"""
    )
    return found


def _size(of: dict[str, Any], gpus: int) -> str:
    return str(next(name for name, low, high in of["sizes"] if low <= gpus <= high))


def test_tables_are_sorted_by_keyboard(made: dict[str, Path], page: Page) -> None:
    _open(page, made["report"])
    table = page.locator("table.sorts").first
    head = table.locator("thead button", has_text="average JCT")
    head.focus()
    page.keyboard.press("Enter")
    rising = _column(page)
    assert rising == sorted(rising)
    expect(table.locator("th[aria-sort=ascending]")).to_contain_text("average JCT")
    page.keyboard.press("Enter")
    assert _column(page) == rising[::-1]


def test_jobs_are_clicked_through_by_keyboard(made: dict[str, Path], page: Page) -> None:
    _open(page, made["report"])
    page.get_by_role("button", name="Next job").focus()
    page.keyboard.press("Enter")
    first = page.locator("#job h4").inner_text()
    assert first.startswith("Job ")
    expect(page.locator("#job tbody tr")).to_have_count(3)
    page.keyboard.press("Enter")
    expect(page.locator("#job h4")).not_to_have_text(first)
    button = page.locator("#longest tbody button").first
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#job h4")).to_have_text(f"Job {button.inner_text()}")
    dot = page.locator("[data-figure=jobs] .mark-symbol path").first
    dot.scroll_into_view_if_needed()
    dot.click(force=True)
    expect(page.locator("#job h4")).to_have_count(1)


def test_any_job_is_chosen_by_id_click_key_and_address(demo: Path, page: Page) -> None:
    page.goto(demo.as_uri())
    each = json.loads(page.locator("#each-job").text_content() or "")
    ids = json.loads(page.locator("#columns").text_content() or "")["id"]
    fixed = page.locator(".sampled caption").all_inner_texts()
    others = [i for i, job in enumerate(ids) if not any(job in text for text in fixed)]
    waited = next(i for i in others if each["jobs"][i][0] and each["jobs"][i][4])
    panel = page.locator("#any")
    expect(panel).to_be_hidden()
    page.get_by_label("any of").fill(ids[waited])
    page.keyboard.press("Enter")
    _tells(page, each, ids, waited)
    expect(panel.locator("svg path.lit").first).to_be_visible()
    expect(panel.locator(".gantt.close path.g-own")).to_have_attribute("d", re.compile("^M"))
    accessible(page, "any job")
    fits(page, "any job")
    shoot(page, f"any-{page.viewport_size['width'] if page.viewport_size else 0}")

    assert page.evaluate("location.hash") == f"#job={ids[waited]}"
    page.reload()
    _tells(page, each, ids, waited)

    lanes = page.locator("[data-choose]")
    lanes.focus()
    page.keyboard.press("ArrowRight")
    later = ids.index(page.evaluate("location.hash").removeprefix("#job="))
    assert later != waited
    first = next(s for s in each["schedule"]["spells"] if s[0] in others and s[2] - s[1] > 9_000)
    box = lanes.bounding_box()
    assert box is not None
    middle = (first[1] + first[2]) / 2 / each["schedule"]["until"]
    row = (first[5] + first[6] / 2) / each["schedule"]["rows"]
    where = {"x": middle * box["width"], "y": row * box["height"]}
    lanes.click(position=where)  # type: ignore[arg-type]
    _tells(page, each, ids, first[0])

    page.get_by_label("any of").fill("nobody's")
    page.keyboard.press("Enter")
    expect(page.locator("#choose output")).to_have_text("No job is called that.")


def _tells(page: Page, each: Any, ids: list[str], i: int) -> None:
    """The panel shows the job, with the holders, terms and partner that the data have of it."""
    panel = page.locator("#any")
    expect(panel.locator("> summary")).to_have_text(f"Job {ids[i]}")
    spells, why, (holders, _), steps, pair, _, _, started = each["jobs"][i]
    held = panel.locator("[data-part=held]")
    if not spells:
        expect(held).to_be_hidden()
    else:
        expect(held).to_contain_text(why)
        names = [ids[one] if isinstance(one, int) else one for one, _ in holders]
        assert held.locator("tbody th").all_inner_texts() == names
    expect(panel.locator("[data-part=started]")).to_be_visible(visible=bool(started))
    expect(panel.locator("[data-part=started] p")).to_have_text(started)
    rows = panel.locator("[data-part=terms] tbody tr")
    expect(rows).to_have_count(len(steps))
    for row, (text, _, words) in zip(rows.all(), steps, strict=True):
        expect(row.locator("th")).to_have_text(each["texts"][text])
        expect(row.locator("td.num")).to_have_text(words)
    expect(panel.locator("[data-part=pair]")).to_be_visible(visible=pair is not None)
    if pair is not None:
        expect(panel.locator("[data-part=pair] p").first).to_have_text(pair[1])
    if str(i) in each["tried"]:
        lines = panel.locator("[data-part=tried] li").all_inner_texts()
        assert lines == each["tried"][str(i)]


def test_without_a_script_it_is_read_all_the_same(made: dict[str, Path], browser: Browser) -> None:
    context = window(browser, java_script_enabled=False)
    page = context.new_page()
    page.goto(made["report"].as_uri())
    expect(page.locator("#gpu-counts-table")).to_be_visible()
    expect(page.locator("#gpu-counts-table td").first).to_be_attached()
    expect(page.locator("[data-figure=jobs]")).to_be_hidden()
    expect(page.locator("form.filter").first).to_be_hidden()
    expect(page.locator("table.sorts").first).to_be_visible()
    context.close()


def _drawn(page: Page) -> dict[str, str]:
    return {name: str(page.locator(f"[data-figure={name}] .plot").inner_html()) for name in FIGURES}


def _column(page: Page) -> list[float]:
    cells = page.locator("table.sorts").first.locator("tbody tr td:nth-of-type(1)").all()
    return [float(cell.get_attribute("data-value") or "nan") for cell in cells]
