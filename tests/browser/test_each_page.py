"""Every page: no violation that axe finds, 390 px, by keyboard alone, and honest without a service.

Also the board of somebody with 5,000 jobs that wait.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from pipeline.demo.plan import JOB
from pipeline.demo.run import OPERATOR, Running
from tests.browser.addresses import LIVE, addresses
from tests.browser.conftest import Enter, LinedUp, Mortal, shoot
from tests.browser.test_walk import accessible, fits
from tests.waiting import until

AS_OF = re.compile(r"as of \d\d:\d\d")
FOCUSABLE = "a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']"


def _pages(running: Running, mine: str, who: str) -> Iterator[tuple[str, str]]:
    """Name and address of every page that somebody can open."""
    with running.client(who) as client:
        runs, ended = (
            until(lambda p=p: next(client.jobs(phase=p, limit=9), None), f"a job that is {p}")
            for p in ("running", "ended")
        )
    with running.client("ada") as client:
        array = client.submit_array(["sleep", "60"], "0-4%1", gpus=1, vc="vision")["array_id"]
    ids = mine, runs["job_id"], ended["job_id"], array
    yield from addresses(*ids, operator=who == OPERATOR)


OPERATORS = ("now", "vc-vision", "nodes", "waits", "settings", "drain")  # differ from others'


@pytest.mark.parametrize("who", ["ada", OPERATOR])
def test_each_page_on_a_phone_and_by_keyboard(
    running: Running, lined_up: LinedUp, enter: Enter, who: str
) -> None:
    page = enter(who, "light", 390, dies=True)  # an answer of 403 is a page, too
    for name, path in _pages(running, lined_up.mine, who):
        if who == OPERATOR and name not in OPERATORS:
            continue
        page.goto(path)
        expect(page.locator(".live")).to_have_attribute("data-state", "live")
        where = f"{who} {name}"
        fits(page, where)
        accessible(page, where)
        _reached(page, where)
        shoot(page, f"each-{who}-{name}")


def _reached(page: Page, where: str) -> None:
    """Tab leads to all that can be used, and it is seen where the focus is."""
    wanted = page.evaluate(
        """(selector) => {
          const all = [...document.querySelectorAll(selector)].filter(
            (e) => !e.disabled && e.checkVisibility({ visibilityProperty: true }));
          all.forEach((e, i) => (e.dataset.tabbed = i));
          window.reached = {};
          document.addEventListener("focusin", ({ target }) => {
            const at = target.dataset.tabbed;
            if (at) reached[at] = getComputedStyle(target).outlineStyle;
          });
          document.activeElement.blur();
          return all.length;
        }""",
        FOCUSABLE,
    )
    tabbed = "Array.from(document.querySelectorAll('[data-tabbed]'), (e) => e.dataset.tabbed)"
    for _ in range(3):  # rounds: what is fetched anew meanwhile has no mark, and takes its share
        for _ in range(wanted + 5):
            page.keyboard.press("Tab")
        found = page.evaluate("reached")
        assert "none" not in found.values(), f"{where}: it is not seen where the focus is"
        left = set(page.evaluate(tabbed)) - set(found)
        if not left:
            break
    assert not left, f"{where}: not reached by Tab: {left}"


def test_a_page_says_when_its_service_is_gone(mortal: Mortal, enter: Enter) -> None:
    with mortal.running.client("ada") as client:
        command = [sys.executable, "-I", str(JOB), "--model", "resnet50", "--seconds", "900"]
        asked = {"gpus": 8, "vc": "vision", "share": False, "profile": False}
        job = [client.submit(command, **asked)["job_id"] for _ in range(3)][-1]  # there are 16
    tabs: dict[str, Page] = {}
    page = enter(OPERATOR, at=mortal.running, dies=True)
    for i, path in enumerate((*LIVE, f"/jobs/{job}", "/settings")):
        # a browser opens six connections to a host, and each tab in sight keeps one
        fresh = i % 5 == 4
        page = enter(OPERATOR, at=mortal.running, dies=True) if fresh else page.context.new_page()
        tabs[path] = page
        page.goto(path)
        expect(page.locator(".live")).to_have_text("live")
    page.goto(f"/jobs/{job}/share")
    page.get_by_role("button", name="Make a link").click()
    link = page.locator("[data-link]").input_value()
    page.goto("/settings")
    expect(page.locator(".live")).to_have_text("live")
    guest = enter("", at=mortal.running, dies=True)
    guest.goto(link)
    expect(guest.locator("#gone")).to_be_hidden()
    mortal.kill()
    guest.evaluate(
        "void htmx.ajax('GET', location.href, '#part-job').catch(() => 0)"
    )  # what it does every 20 s
    for path, page in (*tabs.items(), (link, guest)):
        expect(page.locator("#gone")).to_contain_text(re.compile(r"as of \d\d:\d\d"))
        expect(page.locator(".live")).to_have_text(re.compile(r"as of \d\d:\d\d"))
        assert "stale" in str(page.locator("body").get_attribute("class"))
        muted = page.evaluate(
            "getComputedStyle(document.querySelector('main h1')).color === "
            "getComputedStyle(document.querySelector('footer p')).color"
        )
        assert muted, path
        accessible(page, f"{path} without its service")
    shoot(tabs["/"], "gone")
    mortal.start()
    for page in tabs.values():
        expect(page.locator(".live")).to_have_text("live")
        expect(page.locator("#gone")).to_be_hidden()
        assert "stale" not in str(page.locator("body").get_attribute("class"))


@pytest.mark.parametrize("width", [1280, 390])
def test_five_thousand_waiting_jobs(crowded: Running, enter: Enter, width: int) -> None:
    page = enter("ada.byron", "light", width, at=crowded)
    expect(page.get_by_role("heading", name="Your jobs, by kind")).to_be_visible()
    fits(page, "5,000 jobs")
    accessible(page, "5,000 jobs")
    group = page.locator(".groups details").filter(has_text="queued").first
    group.locator("summary").focus()
    page.keyboard.press("Enter")
    every = group.get_by_role("link", name=re.compile(r"^all [\d,]+"))
    expect(every).to_be_visible()
    shoot(page, f"crowded-{width}")
    every.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?**")
    expect(page.locator("h1")).to_contain_text("sweep-lr#-seed#")
    fits(page, "a group")
    accessible(page, "a group")
    shoot(page, f"group-{width}")
    page.get_by_role("link", name="The next").click()
    page.wait_for_url("**&first=100")
    page.locator("tbody a").first.click()
    expect(page.get_by_role("heading", name="Why it waits")).to_be_visible()
    fits(page, "a job of thousands")
    accessible(page, "a job of thousands")


def test_a_shared_link_is_read_without_a_token(
    running: Running, lined_up: LinedUp, enter: Enter
) -> None:
    mine = lined_up.mine
    page = enter("ada", "light", 390)
    page.goto(f"/jobs/{mine}")
    page.get_by_role("link", name="Share this answer").click()
    page.get_by_role("button", name="Make a link").click()
    link = page.locator("[data-link]").input_value()
    assert link.startswith(running.address)
    fits(page, "a link")
    accessible(page, "a link")
    guest = enter("", "light", 390)
    guest.goto(link)
    expect(guest.get_by_role("heading", name="waits-long")).to_be_visible()
    expect(guest.locator("svg.runs")).to_be_visible()
    assert not guest.locator("nav").count()
    assert "grace" not in guest.content()
    fits(guest, "what is shared")
    accessible(guest, "what is shared")
    shoot(guest, "shared")


def test_who_watches_is_told_when_it_is_over(
    running: Running, lined_up: LinedUp, enter: Enter
) -> None:
    mine = lined_up.mine
    page = enter("ada")
    page.context.grant_permissions(["notifications"], origin=running.address)
    page.add_init_script(
        "window.told = []; window.Notification = class { static permission = 'granted';"
        "static requestPermission = async () => 'granted';"
        "constructor(text) { window.told.push(text); } }"
    )
    page.goto(f"/jobs/{mine}")
    assert re.match(r"(Starts|Waits|Starts soon)( .*)? - waits-long", page.title()), page.title()
    page.get_by_role("button", name="Tell me when it starts or ends").click()
    expect(page.get_by_role("button", name="A notification will come")).to_be_visible()
    assert page.evaluate("told") == []
    with running.client("ada") as client:
        client.cancel(mine)
    expect(page.locator("h1 .chip")).to_have_text("cancelled")
    page.wait_for_function("told.length > 0")  # the page looks once what was swapped has settled
    assert page.evaluate("told") == ["waits-long is over: cancelled"]
    expect(page).to_have_title(re.compile("^Cancelled - waits-long"))
