"""Plans as Markdown, read by GitHub's own parser: whatever a cluster or a host wrote is text, and
stays in its cell.
"""

import html
import re

import pytest
from cmarkgfm import github_flavored_markdown_to_html  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout.model.plan import Exclusion, ExclusionReason, PlanSummary, PlanWarning, RolloutPlan
from rollout.model.text import printable
from rollout.model.timestamps import elapsed
from rollout.report.markdown import plan_markdown
from tests.report.builders import blocker, plan

HOSTILE = [
    "<script>alert(1)</script><img src=x>",
    "[here](https://evil.example) https://evil.example www.evil.example",
    "@everyone #1 !1 ~label owner/repo#1",
    "a | b \\| c \\\\| d \\\\\\| e",
    "`code` ``more`` and `",
    "```\n\n# heading\n\n- item\n\n---\n",
    "&lt;b&gt; &#64;all",
    "\x1b[31mred\x07 \u202eright to left",
]


def rendered(text: str) -> str:
    page: str = github_flavored_markdown_to_html(
        plan_markdown(plan_with(text), zone_by_node={"node-1": text})
    )
    return page


def plan_with(text: str) -> RolloutPlan:
    excluded = (
        Exclusion("node-4", ExclusionReason.UNREACHABLE, text),
        Exclusion(text, ExclusionReason.PAUSED, "x"),
    )
    warnings = (PlanWarning("node-1", text, text),)
    return replace(
        plan(blockers=(blocker(),), warnings=warnings), excluded=excluded, plan_id=text or "0"
    )


def test_a_plan_has_its_waves_and_what_is_wrong() -> None:
    text = plan_markdown(
        plan(blockers=(blocker(),), warnings=(PlanWarning("node-1", "pod/a/b", "loses its data"),)),
        zone_by_node={"node-1": "a", "node-2": "b", "node-3": "b"},
    )
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[:4] == [
        "## Rollout plan",
        "",
        "```text",
        "3 nodes in https://127.0.0.1:6443 3975.2.0 → 4081.2.1",
    ]
    for line in (
        "2 node-2, node-3 b 10 3975.2.0 → 4081.2.1 up to 2 at once",
        "· node-4 paused: paused by an annotation",
        "✘ node-2 PDB shop/cart never allows an eviction → mend its selector",
        "! node-1 pod a/b loses its data",
        "Blocked: apply will not start. To leave this node out, use --skip blocked.",
    ):
        assert line in lines
    assert lines[-1].startswith("Plan `0123456789abcdef` for `https://127.0.0.1:6443`, made")


def test_an_empty_plan_has_no_table_of_waves() -> None:
    text = plan_markdown(replace(plan(), waves=(), summary=PlanSummary(0, 0, 0)), zone_by_node={})
    assert "Nothing to do: no node is planned; left out: 1 paused." in text
    assert "WAVE" not in text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_nothing_else(text: str) -> None:
    assert_harmless(text)


@given(st.text(alphabet="ab|\\`<>&@#*_[]()!~-\n \x1b:/.", max_size=30))
def test_any_text_is_shown_and_nothing_else(text: str) -> None:
    assert_harmless(text)


def assert_harmless(text: str) -> None:
    page = rendered(text)
    # outside of code, what was written into the plan is nowhere
    outside = re.sub(r"<code.*?</code>", "", page, flags=re.DOTALL)
    assert set(re.findall(r"<(\w+)", page)) == {"h2", "p", "pre", "code"}, page
    assert not re.search(r"[@#`|\\]", re.sub(r"<[^>]*>", "", html.unescape(outside))), page
    block, *spans = [
        html.unescape(code) for code in re.findall(r"<code.*?>(.*?)</code>", page, re.DOTALL)
    ]
    expected = printable(text).strip()
    assert expected in {*spans, "", "-"}
    assert " ".join(expected.split()) in " ".join(block.split())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größer, 日本", "größer, 日本"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\tc\r", "a b c "),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),
        ("\u200b", "\\u200b"),
        ("bell\a", "bell\\x07"),
        ("\ud800", "\\ud800"),
    ],
)
def test_foreign_text_is_made_safe(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_nothing_unprintable_is_left(text: str) -> None:
    shown = printable(text)
    assert "\x1b" not in shown
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in shown)
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0s"), (0.4, "0s"), (59.4, "59s"), (61, "1m01s"), (600, "10m00s"), (3661, "1h01m")],
)
def test_stretches_of_time(seconds: float, shown: str) -> None:
    assert elapsed(seconds) == shown
