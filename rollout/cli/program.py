import re
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAM = "rollout"
PLUGIN = "kubectl node-rollout"
_PLUGIN_FILE = "kubectl-node_rollout"

COMMANDS: Mapping[str, str] = {
    "status": "Show which nodes are waiting for a reboot, and why others are not.",
    "plan": "Show what apply would do, or show a saved plan.",
    "apply": "Drain and reboot pending nodes, following a new or saved plan.",
    "resume": "Continue an interrupted rollout; to end a pause, use unpause.",
    "operate": "Reboot pending nodes unattended, once or continuously.",
    "abort": "Cancel an interrupted rollout, and clean up after it.",
    "rollback": "Roll nodes back to their previous version.",
    "pause": "Prevent rollouts from rebooting some or all nodes.",
    "unpause": "End a pause.",
    "hold": "Prevent rollouts from rebooting nodes into a version.",
    "release": "End the hold on a version.",
    "history": "List the runs recorded on this machine, or show one of them.",
    "report": "Write a report on a run, in HTML, Markdown or JSON.",
    "evidence": "Export proof that a version works, for other clusters.",
    "doctor": "Check everything that a rollout needs, and print fixes.",
    "inventory": "Print the Nodes as an Ansible inventory, in JSON.",
    "known-hosts": "Add the nodes' SSH host keys to a known_hosts file.",
    "check-update": "Make hosts check for an update now.",
    "manifests": "Print the manifests for running rollout in the cluster.",
    "demo": "Watch a rollout on a simulated cluster.",
    "help": "Show help for a command, or write man pages.",
    "completion": "Print a completion script for bash, zsh or fish.",
    "fleetlock": "Serve the FleetLock protocol for hosts that run Zincati.",
    "lab": "Rehearse rollouts on a simulated cluster.",
}
"""The commands, with their descriptions in help."""

# A quotation, which stays as it is: 'my rollout plan'
_QUOTED = r"""(?<![^\s=(])\$?'[^'\n]*'(?:"'"'[^'\n]*')*(?![^\s,.;:)])"""
# After an article, the word means a rollout; after `kubectl`, a subcommand.
_NOT_AFTER = r"(?<![\w./=-])(?<!\ba )(?<!\bthe )(?<!\bThe )(?<!\bkubectl )"
_ARGUMENT = rf"(?= (?:{'|'.join(COMMANDS)}|--?[a-z]+)(?![\w-]|\.\w))"
_COMMAND = re.compile(
    # On its own line only the first word changes: arguments may quote anything.
    rf"(?m:^(?P<indent> +){PROGRAM}(?P<arguments>{_ARGUMENT}.*)$)"
    rf"|(?P<quoted>{_QUOTED})"
    rf"|(?P<in_sentence>{_NOT_AFTER}{PROGRAM}){_ARGUMENT}"
)


def program_name() -> str:
    return PLUGIN if Path(sys.argv[0]).name == _PLUGIN_FILE else PROGRAM


def with_program_name(text: str) -> str:
    """If started as a plugin, write `rollout` as `kubectl node-rollout`."""
    name = program_name()

    def rename(found: re.Match[str]) -> str:
        # It may be a command of someone else.
        if found["quoted"]:
            return found["quoted"]
        if found["in_sentence"]:
            return name
        return f"{found['indent']}{name}{found['arguments']}"

    return text if name == PROGRAM else _COMMAND.sub(rename, text)
