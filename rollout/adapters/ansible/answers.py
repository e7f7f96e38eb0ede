import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rollout.adapters.ssh.known_hosts import INTERCEPTED_HINT
from rollout.errors import (
    HostKeyError,
    SshAuthError,
    SshBrokenError,
    SshError,
    SshTimeoutError,
    SshUnreachableError,
)
from rollout.gather.hosts.polling import Answer
from rollout.model.text import excerpt, joined
from rollout.model.tool_output import last_line
from rollout.ports import CommandResult

_RAW = ("raw", "ansible.builtin.raw", "ansible.legacy.raw")
_RESULT_EVENTS = (
    *("runner_on_ok", "runner_on_failed", "runner_on_unreachable"),
    *("runner_item_on_ok", "runner_item_on_failed"),
)
# The playbook adds the command's number to its result.
_COMMAND_NUMBER = "rollout_command_number"
_LONGEST = 300
_CONNECTION_CLOSED = re.compile(r"^(?:Shared c|C)onnection to \S+ closed\.\r?\n?", re.MULTILINE)

# Ansible before 2.19 writes `ERROR! …`.
_MESSAGE_START = re.compile(r"^(?=\[[A-Z ]+\]: |ERROR! )", re.MULTILINE)
_IS_WARNING = re.compile(r"\[[A-Z ]*WARNING\]: ")
_PLUGIN_FAILURE = re.compile(r"\bFailed to parse\b.{0,300}\bplugin\b", re.DOTALL)
_SCRIPT_ERROR = "Standard error from inventory script:"

_UNREACHABLE_PREFIX = re.compile(r"^(?:Task failed: )?(?:Failed to connect to the host via ssh: )?")

# Bounded, so that the search is not quadratic.
_HOST_KEY = re.compile(
    r"host key verification failed|host identification has changed"
    r"|host key .{0,300}(?:mismatch|changed)",
    re.IGNORECASE,
)
_CHANGED = re.compile(
    r"identification has changed|host key for .{0,300} has changed|does not match", re.IGNORECASE
)
_AUTH = re.compile(
    r"permission denied|too many authentication failures|authentication failed"
    r"|no more authentication",
    re.IGNORECASE,
)
_TIMEOUT = re.compile(r"timed out|timeout", re.IGNORECASE)
# UNKNOWN: an address behind a jump host.
_BROKEN = re.compile(r"\bConnection (?:closed|reset) by (?!UNKNOWN)\S+ port \d+")

_AUTH_HINT = "Check the inventory's ansible_user and key, or --ssh-user and --ssh-key."
_BROKEN_HINT = "It may be booting or going down; try again."
_TIMEOUT_HINT = "Check its address, and whether a firewall blocks the port."
_CAUSES: tuple[tuple[re.Pattern[str], type[SshError], str], ...] = (
    (_HOST_KEY, HostKeyError, f"{INTERCEPTED_HINT}: rollout known-hosts --fingerprints FILE"),
    (_AUTH, SshAuthError, _AUTH_HINT),
    (_TIMEOUT, SshTimeoutError, _TIMEOUT_HINT),
    (_BROKEN, SshBrokenError, _BROKEN_HINT),
)


class HostAnswer(Struct, frozen=True):
    """A host's answer to a command."""

    host: str
    answer: Answer
    # None from `probe.yml`.
    command_number: int | None = None


def parse_event(event: Mapping[str, Any]) -> HostAnswer | None:
    """Return the answer in an Ansible event, or None."""
    data = event.get("event_data") or {}
    is_of_command = data.get("task_action") in _RAW
    if not is_of_command or event.get("event") not in _RESULT_EVENTS:
        return None
    host = data.get("host")
    result = data.get("res")
    if not isinstance(host, str) or not isinstance(result, dict):
        return None
    # A loop reports each item before all `results`.
    repeats_items = "results" in result
    if repeats_items:
        return None
    number = result.get(_COMMAND_NUMBER)
    command_number = number if isinstance(number, int) else None
    return HostAnswer(host, _parse_result(host, result), command_number)


def _parse_result(host: str, result: Mapping[str, Any]) -> Answer:
    if result.get("unreachable"):
        return unreachable_error(host, str(result.get("msg", "")))
    if "timedout" in result:
        details = result["timedout"]
        seconds = details.get("period") if isinstance(details, dict) else None
        within = f" within {seconds} s" if seconds else ""
        return SshTimeoutError(f"no response{within} while running the command")
    status = result.get("rc")
    if not isinstance(status, int):
        reason = str(result.get("msg") or result.get("exception") or "no reason given")
        return SshError(f"Ansible could not run the command: {excerpt(reason, _LONGEST)}")
    stderr = _CONNECTION_CLOSED.sub("", _output(result, "stderr"))
    return CommandResult(status, _output(result, "stdout"), stderr)


def unreachable_error(host: str, message: str) -> SshError:
    """Classify a connection plugin's message."""
    message_end = last_line(message, _LONGEST)
    reason = _UNREACHABLE_PREFIX.sub("", message_end) or "no reason given"
    # The end first: a banner above may mention timeouts, too.
    for text in (message_end, message):
        for pattern, error_type, hint in _CAUSES:
            if not pattern.search(text):
                continue
            if error_type is HostKeyError:
                change = "has changed" if _CHANGED.search(message) else "is unknown, or has changed"
                reason = f"its host key {change}: {reason}"
            return error_type(reason, hint=hint)
    hint = f"Try it manually: ansible {host} -m ansible.builtin.raw -a true"
    return SshUnreachableError(reason, hint=hint)


def split_messages(printed: str) -> tuple[str, ...]:
    """Return the distinct messages, each on one line."""
    messages: list[str] = []
    for part in _MESSAGE_START.split(printed):
        is_message = _MESSAGE_START.match(part)
        line = _first_paragraph(part) if is_message else last_line(part, _LONGEST)
        if line and line not in messages:
            messages.append(line)
    return tuple(messages)


def why_inventory_failed(printed: str) -> str:
    """Return why `ansible-inventory` failed, or empty.

    The right plugin's warning comes first.
    """
    messages = [part for part in _MESSAGE_START.split(printed) if _MESSAGE_START.match(part)]
    for message in messages:
        plugin_failure = _PLUGIN_FAILURE.search(message)
        if plugin_failure:
            failure = _first_paragraph(message[plugin_failure.start() :]).removesuffix(".")
            _, _, script_error = message.partition(_SCRIPT_ERROR)
            return joined(": ", failure, last_line(script_error, _LONGEST))
    errors = [message for message in messages if not _IS_WARNING.match(message)]
    if errors:
        return _first_paragraph(errors[-1])
    return last_line(printed, _LONGEST)


def _first_paragraph(message: str) -> str:
    return excerpt(message.strip().partition("\n\n")[0], _LONGEST)


def _output(result: Mapping[str, Any], key: str) -> str:
    return str(result.get(key) or "").replace("\r\n", "\n")
