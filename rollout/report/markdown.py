"""A plan as Markdown, for merge requests, tickets and summaries of jobs (GitHub's flavour, which GitLab reads, too).

What a cluster or a host wrote stands in spans of code alone: there it is no link, no HTML, no mention of a person and
no reference to an issue, whoever shows it.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence

from tabulate import tabulate

from rollout.model.plan import RolloutPlan
from rollout.model.text import NOTHING, printable
from rollout.report.findings import lists_of_findings
from rollout.report.tables import left_out_rows, plan_sum
from rollout.report.wave_rows import wave_rows

_BACKTICKS = re.compile("`+")


def plan_markdown(plan: RolloutPlan, *, zones: Mapping[str, str]) -> str:
    """The same as the text: the sum, waves, what stands in the way, who is left out. `zones` are by Node name."""
    return "\n\n".join(_parts(plan, zones)) + "\n"


def _parts(plan: RolloutPlan, zones: Mapping[str, str]) -> Iterator[str]:
    yield "## Rollout plan"
    yield "\n\n".join(plan_sum(plan).splitlines())
    if plan.waves:
        yield table(*wave_rows(plan, zones))
    for heading, sentences in lists_of_findings(plan.blockers, plan.warnings):
        yield f"**{heading}**"
        yield "\n".join(f"- {code(sentence)}" for sentence in sentences)
    if plan.excluded:
        yield table(*left_out_rows(plan))
    yield f"Plan {code(plan.plan_id)} for {code(plan.cluster.server)}, made {code(plan.created_at)}"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, own: Container[str] = ()) -> str:
    """A table whose cells are spans of code, but for columns with our `own` words alone."""
    cells = [
        [text if heading in own else _cell(text) for heading, text in zip(headers, row, strict=True)] for row in rows
    ]
    return tabulate(
        cells, headers=[heading.capitalize() for heading in headers], tablefmt="github", disable_numparse=True
    )


def _cell(text: str) -> str:
    """A table's own sign ends a cell even within code, unless it is escaped."""
    return code(", ".join(text.splitlines())).replace("|", r"\|")


def code(text: str) -> str:
    """A span of code; longer marks than any within enclose it, and spaces keep those at its ends from theirs."""
    line = printable(text).strip()
    if line in ("", NOTHING):
        return line
    marks = "`" * (1 + max(map(len, _BACKTICKS.findall(line)), default=0))
    padding = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{marks}{padding}{line}{padding}{marks}"
