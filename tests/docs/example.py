"""Makes the report that the documents show, of the journal of a night in the lab: `python -m
tests.docs.example`.
"""

import os
import time
from pathlib import Path

from rollout.adapters.journal import read_journal
from rollout.report.runs.pages import run_page
from rollout.report.runs.report import report_of
from tests.docs.pages import DOCS

JOURNAL = Path(__file__).with_name("night.jsonl")
EXAMPLE = DOCS / "example-report.html"
LARGEST = 200_000


def made() -> str:
    """The page, in UTC."""
    return run_page(report_of(tuple(read_journal(JOURNAL)), origin=str(JOURNAL)))


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    EXAMPLE.write_text(made(), encoding="utf-8")
