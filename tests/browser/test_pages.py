"""The pages in a real browser: nothing fetched, nothing complained of, nothing wider than the screen, axe content.

It needs chromium (or Chrome), npm and the network, so it waits to be asked for: `ROLLOUT_BROWSER=1
pytest tests/browser`, with `pip install --group browser`. Pictures of what it saw go to
`$ROLLOUT_PICTURES`, where that is set.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rollout.adapters.web import WebPage, page_application, serve_http
from rollout.report.history import COLUMNS, history_row
from rollout.report.lines import Record
from rollout.report.runs.pages import LivePageFrame, Page, PastRun, live_page
from rollout.report.runs.report import report_of
from tests.docs.example import EXAMPLE
from tests.report.journals import fleet
from tests.report.test_pages import PAGES, night, page_of

ASKED_FOR = "ROLLOUT_BROWSER"
pytestmark = [
    pytest.mark.usefixtures("utc"),
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(not os.environ.get(ASKED_FOR), reason=f"needs a browser: {ASKED_FOR}=1"),
    pytest.mark.timeout(300),
]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
AXE = "axe-core@4.10.3"
WIDTHS = (1400, 390)
MADE: Mapping[str, Callable[[], str]] = {
    "example": lambda: EXAMPLE.read_text(encoding="utf-8"),
    "live": lambda: live(night()[:9], refresh=5).html,
    "nothing": lambda: live((), refresh=30).html,
    **PAGES,
}


def live(records: Sequence[Record], *, refresh: int) -> Page:
    """The page that `operate` and `status --web` serve."""
    report = report_of(records, origin="run.jsonl", is_being_written=True) if records else None
    row = history_row(report, shows_cluster=True) if report else ()
    beside = LivePageFrame(
        at=datetime(2026, 11, 29, 3, 4, 5, tzinfo=UTC),
        status=(
            "Rollout 3f9a is running in wave 1 of 8: 2 nodes in progress, 10 done",
            "  w-1: drained",
        ),
        headings=[column.title.capitalize() for column in COLUMNS],
        history=[PastRun(report.run, row)] * 20 if report else (),
        refresh=refresh,
        is_latest=True,
    )
    return live_page(report, beside)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where it is asked for

    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    assert program, f"none of {BROWSERS} is installed"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The checker of accessibility, as npm has it."""
    folder = Path(tempfile.gettempdir()) / "rollout-axe"
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        folder.mkdir(exist_ok=True)
        subprocess.run(
            ["npm", "install", "--no-save", "--prefix", folder, AXE],
            check=True,
            capture_output=True,
        )
    return script.read_text(encoding="utf-8")


@pytest.fixture(params=MADE)
def page_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"{request.param}.html"
    path.write_text(MADE[request.param](), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_is_read_by_everybody(
    browser: Any, axe: str, page_file: Path, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 900}
    # its policy holds but for the checker
    with browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True) as context:
        page = context.new_page()
        page.goto(page_file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("for (const item of document.querySelectorAll('details')) item.open = true")
        page.evaluate(axe)
        violations = page.evaluate("axe.run().then(result => result.violations)")
        assert [
            (item["id"], [node["html"][:200] for node in item["nodes"][:3]]) for item in violations
        ] == []
        picture(page, f"{page_file.stem}-{width}-{scheme}.png")


def picture(page: Any, name: str) -> None:
    if folder := os.environ.get("ROLLOUT_PICTURES"):
        page.evaluate("for (const item of document.querySelectorAll('details')) item.open = false")
        page.screenshot(path=Path(folder) / name, full_page=True)


def test_a_thousand_nodes_are_shown_at_once(browser: Any, tmp_path: Path) -> None:
    """The checker would take minutes for so many; what it would check is the same as of a hundred."""
    path = tmp_path / "thousand.html"
    path.write_text(page_of(fleet(1000, 10).records()), encoding="utf-8")
    for width in WIDTHS:
        with browser.new_context(viewport={"width": width, "height": 900}) as context:
            page = context.new_page()
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            picture(page, f"thousand-{width}-light.png")


def test_a_page_asks_for_nothing_and_runs_nothing(browser: Any, page_file: Path) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_file.as_uri())
        page.wait_for_load_state("networkidle")
        assert said == []
        assert asked == [page_file.as_uri()]


def test_a_live_page_is_loaded_again_by_itself_and_from_nowhere_else(browser: Any) -> None:
    """As it is served: what the headers forbid is complained of in the console."""
    page_of_run = live(night()[:9], refresh=1)
    served = WebPage(page_of_run.html, page_of_run.csp, refresh=1)

    def pages(path: str, *, refreshes: bool) -> WebPage | None:
        return (served if refreshes else replace(served, refresh=0)) if path == "/" else None

    with (
        serve_http("127.0.0.1:0", page_application(pages)) as url,
        browser.new_context() as context,
    ):
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        page.wait_for_timeout(3500)
        assert len(asked) >= 3
        assert set(asked) == {f"{url}/"}
        page.get_by_text("Stop refreshing").click()
        page.wait_for_url(f"{url}/?refresh=off")
        asked.clear()
        page.wait_for_timeout(2500)
        assert asked == []
        assert said == []
