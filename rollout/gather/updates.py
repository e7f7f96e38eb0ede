"""Asks hosts to check for an update, without waiting for it."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from enum import StrEnum

from msgspec import Struct

from rollout.errors import SshError
from rollout.gather.hosts.answer import TIMED_OUT, not_run_message, split_sections
from rollout.gather.hosts.probe_command import MARKER
from rollout.gather.hosts.signs import ENGINE_SILENT
from rollout.gather.hosts.sudo import describe_problem, sudo_problem
from rollout.model.finding import NoHost
from rollout.model.host import Host, HostFacts, HostObservation, UpdateOperation, UpdateStatus
from rollout.model.text import joined
from rollout.model.tool_output import last_line
from rollout.ports import CommandResult, HostExecutor
from rollout.wording import cause_of

_BUS_CALL = (
    "busctl --system call com.coreos.update1 /com/coreos/update1 com.coreos.update1.Manager"
    " AttemptUpdate"
)
_CLIENT_CALL = "update_engine_client -check_for_update"

# Errors stay apart. After a timeout (124) root would get no answer either.
CHECK_COMMAND = rf"""
ask() {{
  printf '\n{MARKER} %s\n' "$1" >&2; seconds=$2; shift 2
  if command -v timeout >/dev/null 2>&1; then timeout "$seconds" "$@" </dev/null >/dev/null
  else "$@" </dev/null >/dev/null; fi
}}
ask client 12 {_CLIENT_CALL} && exit 0; client=$?
ask bus 5 {_BUS_CALL} && exit 0; code=$?
if [ "$client" = {TIMED_OUT} ] || [ "$code" = {TIMED_OUT} ]; then exit {TIMED_OUT}; fi
ask sudo-bus 5 sudo -n {_BUS_CALL} && exit 0
ask sudo-client 12 sudo -n {_CLIENT_CALL}
""".strip()

_CHECK_TIMEOUT_SECONDS = 60.0
_REPORTING_ERROR = (
    "update_engine is reporting a failed update, and accepts no request: try again soon"
)
_INACTIVE = (UpdateOperation.IDLE, UpdateOperation.UNKNOWN, UpdateOperation.NOT_ASKED)


class CheckOutcome(StrEnum):
    ASKED = "asked"
    STAGED = "staged"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"


class CheckResult(Struct, frozen=True):
    """The result of a request to check for an update."""

    node: str
    outcome: CheckOutcome
    # Staged before, or empty.
    version: str = ""
    message: str = ""

    @property
    def succeeded(self) -> bool:
        return self.outcome in (CheckOutcome.ASKED, CheckOutcome.STAGED)


def check_hosts(
    selected: tuple[str, ...],
    observations: Mapping[str, HostObservation],
    shell: HostExecutor,
    *,
    concurrency: int,
) -> Iterator[CheckResult]:
    """Ask hosts whose update_engine is idle."""
    hosts_to_ask = dict[str, Host]()
    for node in selected:
        observation = observations.get(node)
        if not isinstance(observation, HostFacts):
            why = observation.message if observation is not None else cause_of(NoHost())
            yield CheckResult(node, CheckOutcome.UNREACHABLE, message=why)
            continue
        result = _result_without_asking(node, observation.update)
        if result is not None:
            yield result
        else:
            hosts_to_ask[node] = observation.host
    answers = shell.run_on_all(
        hosts_to_ask, CHECK_COMMAND, timeout=_CHECK_TIMEOUT_SECONDS, concurrency=concurrency
    )
    with closing(answers):
        for node, answer in answers:
            if isinstance(answer, SshError):
                yield CheckResult(node, CheckOutcome.UNREACHABLE, message=answer.message)
                continue
            refusal = check_refusal(answer)
            outcome = CheckOutcome.REFUSED if refusal else CheckOutcome.ASKED
            yield CheckResult(node, outcome, message=refusal)


def _result_without_asking(node: str, update: UpdateStatus) -> CheckResult | None:
    if update.needs_reboot:
        return CheckResult(node, CheckOutcome.STAGED, update.new_version, "already staged")
    if update.operation is UpdateOperation.REPORTING_ERROR:
        return CheckResult(node, CheckOutcome.REFUSED, message=_REPORTING_ERROR)
    if update.operation not in _INACTIVE:
        message = f"it was already checking: {update.operation}"
        return CheckResult(node, CheckOutcome.ASKED, message=message)
    return None


def check_refusal(result: CommandResult) -> str:
    if result.exit_status == 0:
        return ""
    if result.exit_status is None:
        return "the connection ended before the host responded"
    stderr = split_sections(result.stderr)
    # The script starts with a marker.
    has_started = bool(stderr)
    if not has_started:
        return not_run_message(last_line(result.stderr))
    if result.exit_status == TIMED_OUT:
        return ENGINE_SILENT
    error = last_line(stderr.get("bus", "")) or last_line(stderr.get("client", ""))
    why = f"update_engine refuses the request: {error or f'exit status {result.exit_status}'}"
    sudo_error = stderr.get("sudo-bus", "")
    return joined("; and ", why, describe_problem(sudo_problem(sudo_error), sudo_error))
