"""How an option is declared: in a line or two, from which all that typer wants to be told follows.

    max_unavailable: Annotated[Count, Flag(WAVES, "Most nodes away at once.", "COUNT")] = Count(1)

is `--max-unavailable`, `ROLLOUT_MAX_UNAVAILABLE`, and `max-unavailable` in rollout.toml, and stands in the help under
"Waves". What differs from this rule is written out.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import typer

from rollout.cli.settings.reserved import HIDDEN, REREAD
from rollout.cli.terminal import say

CLUSTER = "Cluster"
NODES = "Nodes"
SSH = "SSH"
WAVES = "Waves"
DRAIN = "Drain"
PATIENCE = "Patience"
WINDOWS = "Windows"
GATES = "Gates"
COURTESY = "Courtesy"
STOPPING = "Stopping"
METRICS = "Metrics"
NOTIFICATIONS = "Notifications"
GENERAL = "Output and settings"
# Options that only one command, or two, have: the help lists them last.
OWN = ""

_PREFIX = "ROLLOUT_"


@dataclass(frozen=True, slots=True)
class Flag:
    """An option but for its name, which is that of its field or parameter; `panel` is its heading in the help.

    `read` makes a value of what was written, `check` sees the values of all its repetitions at once. `variable` is for
    the flag whose own variable is another's. `negated` adds `--no-NAME`; `eager` has it read before all others. The
    value of one that `counts` is how often it was given. One that is `superseded_by` another is still taken, with a
    word on standard error, and stands in no help.
    """

    panel: str
    help: str
    metavar: str | None = None
    _: KW_ONLY
    short: str = ""
    variable: str = ""
    negated: bool = False
    least: int | None = None
    most: int | None = None
    read: Callable[[str], Any] | None = None
    check: Callable[..., Any] | None = None
    eager: bool = False
    counts: bool = False
    superseded_by: str = ""

    def option(self, name: str, default: object) -> Any:
        """The same for typer; an empty default is none to be shown."""
        return typer.Option(
            *self._written(name),
            envvar=self.variable or variable_of(name),
            show_envvar=False,
            # the default of a settings file, where there is one, may be a secret
            show_default=default != "" and not self.counts and name.replace("_", "-") not in HIDDEN,
            metavar=self.metavar,
            min=self.least,
            max=self.most,
            parser=self.read,
            callback=_superseded(self.superseded_by) if self.superseded_by else self.check,
            hidden=bool(self.superseded_by),
            is_eager=self.eager,
            count=self.counts,
            help=self.help,
            rich_help_panel=self.panel or None,
        )

    def _written(self, name: str) -> list[str]:
        flag = name.replace("_", "-")
        long = f"--{flag}/--no-{flag}" if self.negated else f"--{flag}"
        return [long, self.short] if self.short else [long]


def _superseded(successor: str) -> Callable[..., object]:
    def tell(context: typer.Context, parameter: typer.CallbackParam, value: object) -> object:
        if value and not context.resilient_parsing and REREAD not in context.meta:
            say(f"warning: --{str(parameter.name).replace('_', '-')} is superseded by --{successor}")
        return value

    return tell


def variable_of(name: str) -> str:
    """The environment variable of an option."""
    return _PREFIX + name.upper()
