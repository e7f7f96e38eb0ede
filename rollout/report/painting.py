"""Colours for what is read on a terminal: laid over text that says the same without them.

Names of nodes and words of hosts are not looked into: only whole cells and the beginnings of lines are coloured.
"""

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.text import Text
from rich.theme import Theme

from rollout.model.plan import ExclusionKind, ExclusionReason, kind_of
from rollout.model.progress import Outcome

# a sign may stand before its word
_CELL = r"(?:(?<=  )|(?<=[!~✔✘] )|^){}(?=  |$)"
_SIGN = r"(?:(?<=  )|^ *)(?P<{}>[{}])(?= \S)"
_GOOD = "succeeded"
_WAITING = "updated-need-reboot|not started|skipped|paused|cordoned|blocked"
_BAD = "|".join(
    (
        *(reason for reason in ExclusionReason if kind_of(reason) is ExclusionKind.NOT_DONE),
        *(outcome for outcome in Outcome if outcome not in (Outcome.SUCCEEDED, Outcome.SKIPPED)),
    )
)


class StateHighlighter(RegexHighlighter):
    """States, marks, headings, and what leads on."""

    base_style = "rollout."
    highlights = (
        r"(?m)^(?P<heading> *[A-Z]{3,}(?: [A-Z]+)?(?:  +[A-Z]{2,}(?: [A-Z]+)?)*)$",
        rf"(?m){_CELL.format(f'(?P<good>{_GOOD})')}",
        rf"(?m){_CELL.format(f'(?P<waiting>{_WAITING})')}",
        rf"(?m){_CELL.format(f'(?P<bad>{_BAD})')}",
        r"(?m)^(?P<good>✔)|^(?P<waiting>!) |^(?P<bad>✘)",
        *(rf"(?m){_SIGN.format(style, signs)}" for style, signs in (("good", "✔"), ("waiting", "~!"), ("bad", "✘"))),
        r"(?m)^ *(?P<bad>Blockers on .*:|Nothing can start .*:|BLOCKED: .*)$|^ *(?P<waiting>Warnings:)$",
        r"(?m)^(?P<bad>\S+ failed \([^)]*\)):",
        r"(?m)^ *(?P<hint>hint:|fix:|Go on:|See:)",
        r"(?P<step>\S+ → \S+)",
    )


THEME = Theme(
    {
        "rollout.heading": "bold",
        "rollout.good": "green",
        "rollout.waiting": "yellow",
        "rollout.bad": "bold red",
        "rollout.hint": "cyan",
        "rollout.step": "cyan",
    }
)


def painted(text: str) -> Text:
    """The text with its colours."""
    return StateHighlighter()(Text(text))


def has_colours(console: Console) -> bool:
    """Whether colours are wanted there: a terminal that can, and nobody who said NO_COLOR."""
    return console.is_terminal and console.color_system is not None and not console.no_color
