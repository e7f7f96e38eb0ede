"""Pages: one file that fetches nothing and runs nothing, whatever was written into it; read by
everybody.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from cmarkgfm import github_flavored_markdown_to_html  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.errors import InputError
from rollout.model.json_text import json_document
from rollout.model.text import printable
from rollout.report.history import history_text, timeline_text
from rollout.report.lines import Record
from rollout.report.markdown import run_markdown
from rollout.report.runs.pages import run_page, timeline
from rollout.report.runs.report import report_of
from tests.report.journals import Night, fleet, held, policy, record
from tests.report.test_markdown import HOSTILE

pytestmark = pytest.mark.usefixtures("utc")
# What shows something, and fetches, runs and sends nothing.
TAGS = frozenset(
    {
        *(
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "header",
            "nav",
            "main",
            "section",
            "footer",
        ),
        *(
            "a",
            "h1",
            "h2",
            "h3",
            "p",
            "span",
            "div",
            "dl",
            "dt",
            "dd",
            "ul",
            "li",
            "strong",
            "code",
            "time",
        ),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"),
        *("svg", "defs", "g", "rect", "line", "text", "use"),
    }
)
ATTRIBUTES = frozenset(
    {
        *(
            "lang",
            "charset",
            "http-equiv",
            "content",
            "name",
            "class",
            "href",
            "id",
            "scope",
            "datetime",
        ),
        *("role", "aria-label", "aria-labelledby", "aria-hidden", "tabindex"),
        *("width", "height", "x", "y", "x1", "x2", "y2", "colspan"),
    }
)
# Fields of records that have a form of their own: others' words never stand in them.
FORMS = frozenset({"type", "at", "since", "phase", "format_version", "plan_id", "windows"})
# What a terminal obeys, or that turns the direction of text.
CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Page(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Mapping[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def attributes(self, name: str) -> list[str]:
        return [
            value or ""
            for _tag, attributes in self.tags
            if (value := attributes.get(name)) is not None
        ]


def night() -> tuple[Record, ...]:
    """All that a page can show."""
    rules = policy("22:00 5m")
    first, *rest = Night(failed=frozenset({"worker-2"}), rules=rules).records()
    extra = (
        held("worker-2", "shop/ledger-0", 10, 41),
        record("notice", 50, message="waiting for the API server"),
        record(
            "wave_settling", 230, index=1, waiting_for="ReplicaSet shop/cart has 1 of 2 pods ready"
        ),
    )
    end = {
        "not_done": [{"node": "worker-9", "reason": "no-sudo", "message": "sudo asks"}],
        "left_out": {"paused": 1},
    }
    failed = {"hint": "look", "ssh_error": "refused", "console": "lab://2", "conditions": []}
    rest = [
        {**entry, **failed} if entry.get("outcome") == "drain-failed" else entry for entry in rest
    ]
    return (
        first,
        *rest[:-1],
        *extra,
        {**rest[-1], **end, "reasons": {"worker-8": "1 node failed"}},
    )


def page_of(records: tuple[Record, ...]) -> str:
    return run_page(report_of(records, origin="run.jsonl"))


PAGES: Mapping[str, Callable[[], str]] = {
    "run": lambda: page_of(night()),
    "open": lambda: page_of(night()[:9]),
    "large": lambda: page_of(fleet(100, 10).records()),
}


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]()


def test_a_page_is_one_file_whose_own_policy_forbids_all_else(page: str) -> None:
    read = Page(page)
    assert_harmless(read, "prod.example")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    wanted = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert wanted in read.attributes("content")


def test_a_page_can_be_read_without_seeing_it(page: str) -> None:
    read = Page(page)
    assert read.tags[0] == ("html", {"lang": "en"})
    headings = [int(tag[1]) for tag, _attributes in read.tags if re.fullmatch(r"h\d", tag)]
    assert headings.count(1) == 1
    assert all(deeper - level <= 1 for level, deeper in pairwise(headings))
    names = read.attributes("id")
    assert len(names) == len(set(names))
    assert {target.removeprefix("#") for target in read.attributes("href")} <= set(names)
    assert {*read.attributes("aria-labelledby")} <= set(names)
    assert all("aria-hidden" in attributes for tag, attributes in read.tags if tag == "svg")
    assert all("scope" in attributes for tag, attributes in read.tags if tag == "th")
    assert (
        read.tags[[tag for tag, _attributes in read.tags].index("body") + 1][1]["class"] == "skip"
    )


def test_a_page_shows_all_that_was_asked_of_it() -> None:
    words = " ".join(" ".join(Page(page_of(night())).words).split())
    for text in (
        "incomplete: of 3 planned nodes, 2 succeeded, 1 failed",
        *("prod.example:6443", "by ann@laptop/12 at 22:00:00, rollout 1.2.3", "--window 22:00 5m"),
        "drain-failed in phase draining",
        "it went wrong",
        "last SSH error: refused",
        "console: lab://2",
        "look",
        *(
            "sudo asks",
            "shop/ledger-0",
            "needs 2 healthy, has 2",
            "ReplicaSet shop/cart has 1 of 2 pods ready",
        ),
        *("Where the time went", "estimated 10m00s, took 7m52s", "3975.2.0 → 4081.2.1"),
        *("waiting for the API server", "window open", "an eviction was blocked"),
        "15 pods had to be evicted: 7 evictions",
    ):
        assert text in words, text


def test_of_many_nodes_the_timeline_has_those_that_failed() -> None:
    report = report_of(fleet(200, 10).records(), origin="run.jsonl")
    rows = {row.label for _title, rows in timeline(report).sections for row in rows}
    assert len(rows) == 60
    assert rows > {node.node for node in report.nodes if node.outcome == "drain-failed"}


def hostile(value: Any, text: str) -> Any:
    """Every word of a record that a cluster or a host may have written, replaced."""
    match value:
        case dict():
            return {
                name: item if name in FORMS else hostile(item, text) for name, item in value.items()
            }
        case list() | tuple():
            return [hostile(item, text) for item in value]
        case "succeeded" | "drain-failed":
            return value
        case str():
            return text
        case _:
            return value


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_are_shown_and_nothing_else(text: str) -> None:
    records = tuple(hostile(entry, text) for entry in night())
    assert_harmless(Page(page_of(records)), text)


def assert_harmless(read: Page, text: str) -> None:
    assert {tag for tag, _attributes in read.tags} <= TAGS
    assert {name for _tag, attributes in read.tags for name in attributes} <= ATTRIBUTES
    assert all(target.startswith("#") for target in read.attributes("href"))
    words = "".join(read.words)
    assert printable(text) in words
    assert not CONTROLS.search(words)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_are_words_in_markdown(text: str) -> None:
    records = tuple(hostile(entry, text) for entry in night())
    page = github_flavored_markdown_to_html(run_markdown(report_of(records, origin="run.jsonl")))
    outside = re.sub(r"<code>.*?</code>", "", page, flags=re.DOTALL)
    tags = set(re.findall(r"<(\w+)", page))
    assert tags <= {
        "h2",
        "h3",
        "p",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "ul",
        "li",
        "code",
        "blockquote",
    }, page
    assert not re.search(r"[@#`|\\]|script|evil", re.sub(r"<[^>]*>", "", outside)), page


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        2**70,
        1.5,
        "",
        "x",
        "9999-12-31T23:59:59Z",
        "2026-03-04T21:00:00Z",
        "\x1b[2J",
        *([], ["none"], [3], [[]], {}, {"a": {}}, {"\x1b": 1}),
    ]
)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_whatever_stands_in_a_journal_it_is_told_or_refused(data: st.DataObject) -> None:
    """Lines lost, in another order, and with other values: by a disk, by another version, by hand."""
    records = [dict(entry) for entry in data.draw(st.permutations(night()))]
    for entry in data.draw(st.lists(st.sampled_from(records), max_size=6)):
        entry[data.draw(st.sampled_from(sorted(entry)))] = data.draw(ODD)
    records = records[data.draw(st.integers(0, len(records))) :]
    try:
        report = report_of(records, origin="run.jsonl")
    except InputError:
        return
    assert sum(part.seconds for part in report.parts) == pytest.approx(report.seconds, abs=0.1)
    assert_harmless(Page(run_page(report)), report.run)
    assert run_markdown(report)
    assert json_document(report)
    told = "\n".join((history_text([report]), timeline_text(report, records, details=True)))
    assert not CONTROLS.search(told)


def test_a_table_that_goes_on_has_a_shade_at_its_edge() -> None:
    """What covers the shades moves with the table, and the shades stay with its edges."""
    rule = page_of(night()).partition(".scroll {")[2].partition("}")[0]
    assert rule.count("no-repeat local") == 2
    assert rule.count("no-repeat scroll") == 2
