"""Hosts asked to look for an update now: nothing is waited for, `rollout status` shows what becomes of it."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum

from rollout.errors import SshError
from rollout.gather.hosts.answer import CUT_OFF, split_sections
from rollout.gather.hosts.probe_command import MARKER
from rollout.gather.hosts.sudo import refusal
from rollout.model.host import Host, HostFacts, HostObservation, UpdateOperation
from rollout.model.tool_output import last_line
from rollout.ports import CommandResult, HostExecutor

_BUS_CALL = (
    "busctl --system call com.coreos.update1 /com/coreos/update1 com.coreos.update1.Manager"
    " AttemptUpdate"
)
_CLIENT_CALL = "update_engine_client -check_for_update"

# The operator's own command first, the bus where that is missing, and root where both are refused.
# Each question begins with a marker on stderr, so that what one tool complained about is not taken
# for another's. Status 124 is that of a command that was cut off: there is nobody to answer root
# either.
CHECK_COMMAND = rf"""
ask() {{
  printf '\n{MARKER} %s\n' "$1" >&2; seconds=$2; shift 2
  if command -v timeout >/dev/null 2>&1; then timeout "$seconds" "$@" </dev/null >/dev/null
  else "$@" </dev/null >/dev/null; fi
}}
ask client 12 {_CLIENT_CALL} && exit 0; client=$?
ask bus 5 {_BUS_CALL} && exit 0; code=$?
if [ "$client" = {CUT_OFF} ] || [ "$code" = {CUT_OFF} ]; then exit {CUT_OFF}; fi
ask sudo-bus 5 sudo -n {_BUS_CALL} && exit 0
ask sudo-client 12 sudo -n {_CLIENT_CALL}
""".strip()

# What the questions may take in all where nobody answers, and the connection before them.
_CHECK_SECONDS = 60.0
_NOT_AT_IT = (UpdateOperation.IDLE, UpdateOperation.UNKNOWN, UpdateOperation.NOT_ASKED)


class CheckOutcome(StrEnum):
    """What became of the question; fixed words."""

    ASKED = "asked"
    STAGED = "staged"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What became of one host's question. `version` is the one that was staged before."""

    node: str
    outcome: CheckOutcome
    version: str = ""
    message: str = ""

    @property
    def settled(self) -> bool:
        """Whether all is well with it."""
        return self.outcome in (CheckOutcome.ASKED, CheckOutcome.STAGED)


def check_hosts(
    selected: tuple[str, ...],
    observations: Mapping[str, HostObservation],
    shell: HostExecutor,
    *,
    concurrency: int,
) -> Iterator[CheckResult]:
    """Have those look for an update that have none staged, and are not at it already; results as they come."""
    hosts = dict[str, Host]()
    for node in selected:
        observation = observations.get(node)
        if not isinstance(observation, HostFacts):
            why = (
                observation.message if observation else "no host in the inventory matches this Node"
            )
            yield CheckResult(node, CheckOutcome.UNREACHABLE, message=why)
        elif (update := observation.update).needs_reboot:
            yield CheckResult(node, CheckOutcome.STAGED, update.new_version, "already staged")
        elif update.operation is UpdateOperation.REPORTING_ERROR:
            why = (
                "update_engine is reporting a failed update, and accepts no request: try again soon"
            )
            yield CheckResult(node, CheckOutcome.REFUSED, message=why)
        elif update.operation not in _NOT_AT_IT:
            yield CheckResult(
                node, CheckOutcome.ASKED, message=f"it was at it already: {update.operation}"
            )
        else:
            hosts[node] = observation.host
    with closing(
        shell.run_on_all(hosts, CHECK_COMMAND, timeout=_CHECK_SECONDS, concurrency=concurrency)
    ) as answers:
        for node, answer in answers:
            why = answer.message if isinstance(answer, SshError) else check_refusal(answer)
            failed = (
                CheckOutcome.UNREACHABLE if isinstance(answer, SshError) else CheckOutcome.REFUSED
            )
            yield CheckResult(node, failed if why else CheckOutcome.ASKED, message=why)


def check_refusal(result: CommandResult) -> str:
    """Why the host does not look for an update; empty where it does."""
    if result.exit_status == 0:
        return ""
    if result.exit_status is None:
        return "the connection ended before the host answered"
    answers = split_sections(result.stderr)
    if not answers:
        return f"the host did not run the command; it said: {last_line(result.stderr) or 'nothing'}"
    if result.exit_status == CUT_OFF:
        return "update_engine did not answer in time: the system bus or the engine is down"
    cause = last_line(answers.get("bus", "")) or last_line(answers.get("client", ""))
    why = f"update_engine refuses the request: {cause or f'exit status {result.exit_status}'}"
    root = refusal(answers.get("sudo-bus", ""))
    return f"{why}; and {root}" if root else why
