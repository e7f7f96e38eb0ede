"""The constant command that has a host look for an update now, and what its answer means.

As with the probe: the operator's own command first, the bus where that is missing, and root where both are refused.
Each question begins with a marker on stderr, so that what one tool complained about is not taken for another's.
"""

from rollout.gather.hosts.answer import complaint, sections
from rollout.gather.hosts.probe_command import MARKER
from rollout.gather.hosts.sudo import refusal
from rollout.model.text import excerpt
from rollout.ports import CommandResult

_BUS_CALL = "busctl --system call com.coreos.update1 /com/coreos/update1 com.coreos.update1.Manager AttemptUpdate"
_CLIENT_CALL = "update_engine_client -check_for_update"
_CUT_OFF = 124

# Status 124 is that of a command that was cut off: there is nobody to answer root either.
CHECK_COMMAND = rf"""
ask() {{
  printf '\n{MARKER} %s\n' "$1" >&2; seconds=$2; shift 2
  if command -v timeout >/dev/null 2>&1; then timeout "$seconds" "$@" </dev/null >/dev/null
  else "$@" </dev/null >/dev/null; fi
}}
ask client 12 {_CLIENT_CALL} && exit 0; client=$?
ask bus 5 {_BUS_CALL} && exit 0; code=$?
if [ "$client" = {_CUT_OFF} ] || [ "$code" = {_CUT_OFF} ]; then exit {_CUT_OFF}; fi
ask sudo-bus 5 sudo -n {_BUS_CALL} && exit 0
ask sudo-client 12 sudo -n {_CLIENT_CALL}
""".strip()

# What the questions may take in all where nobody answers, and the connection before them.
CHECK_SECONDS = 60.0


def check_refusal(result: CommandResult) -> str:
    """Why the host does not look for an update; empty where it does."""
    if result.exit_status == 0:
        return ""
    if result.exit_status is None:
        return "the connection ended before the host answered"
    answers = sections(result.stderr)
    if not answers:
        return f"the host did not run the command; it said: {excerpt(result.stderr) or 'nothing'}"
    if result.exit_status == _CUT_OFF:
        return "update_engine did not answer in time: the system bus or the engine is down"
    cause = complaint(answers.get("bus", "")) or complaint(answers.get("client", ""))
    why = f"update_engine refuses the request: {cause or f'exit status {result.exit_status}'}"
    root = refusal(answers.get("sudo-bus", ""))
    return f"{why}; and {root.sentence}" if root else why
