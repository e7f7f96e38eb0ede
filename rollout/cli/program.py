"""The names of the program and its commands: `rollout`, or the name of the kubectl plugin if that was typed."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAM = "rollout"
PLUGIN = "kubectl node-rollout"
# The file that kubectl looks for.
_PLUGIN_FILE = "kubectl-node_rollout"

COMMANDS: Mapping[str, str] = {
    "status": "Show which nodes wait for a reboot, and why the others do not.",
    "plan": "Show what apply would do, or a saved plan; touch nothing.",
    "apply": "Run a saved plan; or plan, show, ask and run.",
    "resume": "Go on with an interrupted rollout, from any machine.",
    "operate": "Reboot what waits, unattended: once, or pass after pass.",
    "abort": "Undo what an interrupted rollout started.",
    "pause": "Keep rollouts from starting these nodes, or any.",
    "unpause": "End a pause.",
    "release": "End the hold of a version that failed on too many nodes.",
    "history": "List this machine's runs, or show one as a timeline.",
    "report": "Report a run as a page, Markdown or JSON.",
    "evidence": "Write down what was proved of a version, for other clusters.",
    "doctor": "Check everything that a rollout needs, and name each fix.",
    "inventory": "Print the Nodes as an Ansible inventory, in JSON.",
    "known-hosts": "Scan the Nodes' host keys into a known_hosts file.",
    "check-update": "Ask the selected hosts to look for an update now.",
    "manifests": "Print what runs rollout in the cluster, for kubectl apply.",
    "demo": "Watch a simulated cluster being taken through its updates.",
    "help": "Show the help of a command, or write man pages.",
    "completion": "Print the completion script of bash, zsh or fish.",
    "fleetlock": "Serve FleetLock: hosts with Zincati ask before they reboot.",
    "lab": "Rehearse on a simulated cluster.",
}
"""The commands, with their descriptions in the list of commands."""

# What a shell takes as one word: a name or a value that somebody gave, whatever stands in it.
_QUOTED = r"""(?<![^\s=(])\$?'[^'\n]*'(?:"'"'[^'\n]*')*(?![^\s,.;:)])"""
# After an article the words are about a rollout; after `kubectl` they are one of its own commands.
_BEFORE = r"(?<![\w./=-])(?<!\ba )(?<!\bthe )(?<!\bThe )(?<!\bkubectl )"
_ARGUMENT = rf"(?= (?:{'|'.join(COMMANDS)}|--?[a-z]+)(?![\w.-]))"
# `own` is our name in a command; what follows it on a line of its own, and quoted words, are passed over.
_COMMAND = re.compile(
    rf"(?m:^(?P<indent> +){PROGRAM}{_ARGUMENT}(?P<rest>.*)$)|{_QUOTED}|{_BEFORE}(?P<own>{PROGRAM}){_ARGUMENT}"
)


def program_name() -> str:
    """Return the name by which the program was started."""
    return PLUGIN if Path(sys.argv[0]).name == _PLUGIN_FILE else PROGRAM


def as_started(text: str) -> str:
    """Return a text with its commands as this program was started, so that they can be pasted."""
    name = program_name()
    if name == PROGRAM:
        return text
    return _COMMAND.sub(lambda found: _renamed(found, name), text)


def _renamed(found: re.Match[str], name: str) -> str:
    if found["own"]:
        return name
    return f"{found['indent']}{name}{found['rest']}" if found["indent"] else found[0]
