"""The pages as people use them: waiting, operating, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from pipeline.demo.plan import USERS
from pipeline.demo.run import OPERATOR, Running
from tests.browser.conftest import Enter, LinedUp, shoot
from tests.waiting import until

MENU = ("Now", "Nodes", "History", "Fairness", "Models", "Forecasts")


def accessible(page: Page, where: str) -> None:
    """No violation that axe finds."""
    found = Axe().run(page)
    assert not found.violations_count, f"{where}: {found.generate_report()}"


def fits(page: Page, where: str) -> None:
    """Nothing sticks out to the right of the window."""
    wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window, f"{where} is {wide} px wide in a window of {window}"


def drawn(page: Page) -> None:
    """Every chart of the page is drawn."""
    charts = page.locator("[data-chart]")
    expect(page.locator("[data-chart] .plot .drawing svg").first).to_be_visible()
    for i in range(charts.count()):
        assert charts.nth(i).locator(".drawing svg").count(), charts.nth(i).get_attribute("id")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_an_operator_walks_through(enter: Enter, scheme: str, width: int) -> None:
    page = enter(OPERATOR, scheme, width)
    for name in MENU:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(page.locator("nav a[aria-current=page]")).to_have_text(name)
        expect(page.locator(".live")).to_have_attribute("data-state", "live")
        if name in ("History", "Models"):
            drawn(page)
        where = f"{name.lower()}-{scheme}-{width}"
        fits(page, where)
        accessible(page, where)
        shoot(page, f"operator-{where}")
    page.goto("/")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (bright > 200) if scheme == "light" else (bright < 60)
    page.goto("/models")
    page.locator("#tree summary", has_text="Question by question").click()
    expect(page.locator("#tree ul.tree")).to_contain_text("jumbo")


def test_a_chart_is_never_wider_than_the_window(enter: Enter) -> None:
    """Drawn for a wide window, it is shown in a narrow one before it is drawn again."""
    page = enter(OPERATOR, "light", 390)
    page.goto("/models")
    drawn(page)
    page.evaluate(
        "document.querySelectorAll('.drawing svg').forEach((one) => one.setAttribute('width', 900))"
    )
    fits(page, "a chart drawn for a wider window")


@pytest.mark.parametrize("width", [1280, 390])
def test_somebody_who_waits_finds_out_why(
    running: Running, lined_up: LinedUp, enter: Enter, width: int
) -> None:
    mine, stranger = lined_up.mine, lined_up.strangers
    page = enter("ada", "light" if width > 600 else "dark", width)
    others = [name for name in USERS if name != "ada"]
    expect(page.get_by_role("heading", name="Who waits, and why")).to_be_visible()
    assert not [name for name in others if name in page.content()]
    page.goto(f"/jobs/{mine}")
    expect(page.get_by_role("heading", name="waits-long")).to_be_visible()
    expect(page.get_by_role("heading", name="Why it waits")).to_be_visible()
    expect(page.locator(".why .lead")).to_contain_text(re.compile("GPU|partner|line|evaluated"))
    expect(page.locator(".why")).to_contain_text(re.compile(r"Number \d+ of \d+ in the queue"))
    expect(page.get_by_role("heading", name="Forecast")).to_be_visible()
    fits(page, "a waiting job")
    accessible(page, "a waiting job")
    shoot(page, f"ada-waits-{width}")
    assert not [name for name in others if name in page.content()]
    answer = page.request.get(f"/jobs/{stranger}")
    assert answer.status == 404
    # what would help is asked, and stays on the page while the page lives on
    page.get_by_role("button", name="What would get it in sooner?").click()
    expect(page.locator("#part-answer")).to_contain_text(
        re.compile("[Nn]eeds? |It waits|Unavailable")
    )
    answered = page.locator("#part-answer").inner_text()
    page.evaluate("htmx.trigger(document.body, 'changed-job')")
    page.wait_for_timeout(1500)
    assert page.locator("#part-answer").inner_text() == answered
    fits(page, "an answer")
    accessible(page, "an answer")
    shoot(page, f"ada-asks-{width}")
    # what happens to the job is seen without loading the page again
    page.evaluate("window.stillTheSame = true")
    with running.client("ada") as client:
        client.cancel(mine)
    expect(page.locator("h1 .chip")).to_have_text("cancelled")
    assert page.evaluate("window.stillTheSame")
    shoot(page, f"ada-cancelled-{width}")


@pytest.mark.parametrize("width", [1280, 390])
def test_an_operator_drains_a_node_and_opens_it(enter: Enter, width: int) -> None:
    page = enter(OPERATOR, "light" if width > 600 else "dark", width)
    page.goto("/nodes")
    name = page.locator("tbody th[scope=row]").first.inner_text()
    page.get_by_label(f"Select {name}", exact=True).check()
    page.get_by_label("Reason").fill("fan broken")
    page.get_by_role("button", name="Drain the selected").click()
    expect(page.get_by_role("heading", name="What would come of it")).to_be_visible()
    fits(page, "a preview")
    accessible(page, "a preview")
    shoot(page, f"operator-drains-{width}")
    page.get_by_role("button", name="Drain", exact=True).click()
    drained = f"drained by {OPERATOR}: fan broken"  # without loading the page again
    expect(page.locator("tbody tr").first).to_contain_text(drained)
    fits(page, "a drained node")
    accessible(page, "a drained node")
    page.goto("/")
    said = f"{name} is drained by {OPERATOR}: fan broken"
    expect(page.locator("#part-now")).to_contain_text(said)
    accessible(page, "the board with a drained node")
    page.goto("/nodes?state=drained")
    page.get_by_label("select all that are shown").check()
    page.get_by_role("button", name="Open the selected").click()
    page.get_by_role("button", name="Open", exact=True).click()
    page.goto("/nodes?state=drained")
    expect(page.get_by_text("No node matches.")).to_be_visible()
    page.get_by_role("link", name="Settings in force").click()
    expect(page.get_by_role("heading", name="Settings in force")).to_be_visible()
    fits(page, "settings")
    accessible(page, "settings")
    shoot(page, f"operator-settings-{width}")


def test_a_job_that_shares_its_gpus(running: Running, enter: Enter) -> None:
    with running.client(OPERATOR) as client:

        def paired() -> list[dict[str, str]]:
            begun = [j for p in ("running", "ended") for j in client.jobs(phase=p, limit=100)]
            return [job for job in begun if _packed(client, job["job_id"])]

        shared = until(paired, "somebody of the demo's first wave to be packed", every_s=1.0)
    page = enter()
    page.goto(f"/jobs/{shared[0]['job_id']}")
    expect(page.get_by_role("heading", name="Sharing its GPUs")).to_be_visible()
    expect(page.locator(".speeds").first).to_contain_text("of its speed alone")
    expect(page.locator(".treepath .verdict").first).to_contain_text("predicted speed")
    accessible(page, "a job that shares")
    shoot(page, "operator-shares")


def test_everything_is_reached_by_keyboard(lined_up: LinedUp, enter: Enter) -> None:
    page = enter()
    page.goto("/")
    page.keyboard.press("Tab")
    assert _focused(page) == "Skip to the content"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    inside = page.evaluate("document.querySelector('main').contains(document.activeElement)")
    assert inside, "the skip link leads into the content"
    page.goto("/")
    reached = list[str]()
    while "Log out" not in reached and len(reached) < 20:
        page.keyboard.press("Tab")
        reached.append(_focused(page))
    assert [name for name in MENU if name in reached] == list(MENU)
    assert "Log out" in reached
    # on to a job in the map, and into its page
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('a.block')"):
            break
    said = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert re.match(r"node\d+, GPUs? [\d-]+: job \w+", said)
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    # folds open by keyboard, and stay open when their part is fetched anew
    page.goto("/history?period=all")
    drawn(page)
    page.locator("#ended-table summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#ended-table table")).to_be_visible()
    with page.expect_response(lambda answer: "/history" in answer.url):
        page.evaluate("htmx.trigger(document.body, 'changed-history')")
    page.wait_for_timeout(300)
    expect(page.locator("#ended-table")).to_have_attribute("open", "")


def test_a_broken_connection_is_said_and_mended(enter: Enter) -> None:
    page = enter()
    light = page.locator(".live")
    expect(light).to_have_attribute("data-state", "live")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(light).to_have_text("live")


def test_the_door(running: Running, enter: Enter) -> None:
    page = enter("grace")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    fits(page, "login")
    accessible(page, "login")
    page.get_by_label("Token").fill("pellucid_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    shoot(page, "login-wrong")
    page.goto("/fairness")
    page.wait_for_url("**/login?next=/fairness")
    page.get_by_label("Token").fill(running.secrets["grace"])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/fairness")
    page.goto("/jobs/nothing-there")
    expect(page.get_by_role("heading", name="Not here")).to_be_visible()


def _packed(client, job_id: str) -> bool:  # type: ignore[no-untyped-def]
    return any(line["body"].get("action") == "pack" for line in client.story(job_id))


def _focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent.trim()"))
