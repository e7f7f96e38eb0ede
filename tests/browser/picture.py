"""Takes the picture of a report that the documents show: `python -m tests.browser.picture`, with
chromium.
"""

import shutil

from playwright.sync_api import sync_playwright

from tests.docs.example import EXAMPLE
from tests.docs.pages import DOCS

PICTURE = DOCS / "example-report.png"
_WIDTH = 1180
_FROM = "h2#timeline"
_TO = "h2#failures"


def take() -> None:
    """The timeline, which stands right below the head."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": _WIDTH, "height": 900}, color_scheme="light")
        page.goto(EXAMPLE.as_uri())
        first = page.locator(_FROM).bounding_box()
        last = page.locator(_TO).bounding_box()
        assert first
        assert last
        clip = {
            "x": 0,
            "y": first["y"] - 10,
            "width": _WIDTH,
            "height": last["y"] - first["y"] - 10,
        }
        page.screenshot(path=PICTURE, clip=clip, full_page=True)
        browser.close()


if __name__ == "__main__":
    take()
