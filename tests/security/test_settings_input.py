"""A setting that is wrong is told by its place, before anything is asked; a misspelt one does not pass for a default.

The mishap: `ROLLOUT_MAX_UNAVAILBLE=1` does nothing, a bad window is found only after the cluster
was read, and the message names a flag that nobody gave. The rule: every value of every flag,
variable and setting is judged before the first connection, ends with 64, and is named as it was
written; the API server here is a closed port.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.cli.main import root_command
from rollout.errors import ExitCode
from rollout.lab.api.resources import LEASES
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.ended import Ended, invoked
from tests.scripted_api import Kubeconfig
from tests.state import write

CLOSED = "http://127.0.0.1:1"


FREE_TEXT = {
    **dict.fromkeys(
        ("--image-pull-secret", "--schedule", "--ssh-secret"),
        "of a manifest, which the API server judges where it is applied",
    ),
    "--context": "a name in the operator's kubeconfig",
    "--exclude": "any pattern",
    "--explain": "a Node, which the cluster has or has not",
    "--force-unlock": "what the Lease says",
    "--node": "a Node",
    "--set": "judged by its key",
    "--scenario": "a scenario's name, or a file",
    "--ssh-user": "a user's name has no rules that hold everywhere",
}


"""Flags of which no text can be malformed: those that name what is there or not."""


WORST = "\x01 b/c/d=: é'("


def commands(command: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*names, name))
    if names and not hasattr(command, "commands"):
        yield names, command


def judged() -> Iterator[tuple[tuple[str, ...], str]]:
    """Every flag with the first command that has it."""
    seen = set[str]()
    for names, command in commands(root_command()):
        for option in command.params:
            flag = next((name for name in option.opts if name.startswith("--")), "")
            is_path = "Path" in str(option.type_descriptor.annotation) or option.metavar == "FILE"
            if not flag or flag in seen or is_path or flag in FREE_TEXT:
                continue
            if not (option.is_flag or option.count):
                seen.add(flag)
                yield names, flag


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose kubeconfig leads to a closed port: whoever asks it ends with 1."""
    (tmp_path / ".kube").mkdir()
    Kubeconfig(CLOSED).write(tmp_path / ".kube" / "config")
    return tmp_path


def rollout(home: Path, *arguments: str, variables: dict[str, str] | None = None) -> Ended:
    return invoked(home, variables or {}, arguments)


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    ("names", "flag"), list(judged()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_flag_is_judged_before_anything_is_asked(
    names: tuple[str, ...], flag: str, home: Path
) -> None:
    ended = rollout(home, *names, f"{flag}={WORST}")
    assert ended.code == ExitCode.USAGE, (names, flag, ended)
    assert flag in ended.stderr
    assert "\x01" not in ended.stderr


BAD = [
    (("plan", "--window", "mon 25:00 1h"), "--window"),
    (("plan", "--window", "02:00 3h localtime"), "--window"),
    (("apply", "--yes", "--set", "gates.command='open"), "gates.command"),
    (("doctor", "--set", "reboot.command=" + "a\nb"), "reboot.command"),
    (("status", "--set", "detect.sources=kured"), "detect.sources"),
    (("status", "--set", "detect.sources=command"), "detect.command"),
    (("resume", "--yes", "--set", "detect.command=" + "a\nb"), "detect.command"),
    (("abort", "--yes", "--set", "lock.namespace=../../x"), "lock.namespace"),
    (("plan", "--set", "gates.after-reboot-annotations=a/b/c"), "gates.after-reboot-annotations"),
    (("plan", "--set", "gates.hook-prefix=example..com/"), "gates.hook-prefix"),
    (("plan", "--window", "02:00 3h posix/Europe/Berlin"), "--window"),
    # what no API server takes
    (("plan", "--selector", f"{'a' * 64}=b"), "--selector"),
    (("plan", "--selector", f"a={'b' * 64}"), "--selector"),
    (("plan", "--pod-selector", f"a={'b' * 64}"), "--pod-selector"),
    (("plan", "--spread-by", "a" * 64), "--spread-by"),
    (("plan", "--selector", "cores>many"), "--selector"),
    # a kind without a name
    (("plan", "--exclude", "node/"), "--exclude"),
]


# A variable that the shell does not know is not all nodes and no window.
UNSET = [
    (("plan", "--node", ""), "--node"),
    (("plan", "--exclude", " "), "--exclude"),
    (("apply", "--yes", "-l", ""), "--selector"),
    (("apply", "--yes", "--window", ""), "--window"),
]


def test_what_looks_well_and_is_not(home: Path) -> None:
    for arguments, named in (*BAD, *UNSET):
        ended = rollout(home, *arguments).ends(ExitCode.USAGE)
        assert named in ended.stderr


BLANK_TABLES = [
    ("[[pool]]\nname = 'a'\nselector = '{}'\n", 3),
    ("[[critical]]\nnamespace = 'a'\nmin-available = 1\nselector = '{}'\n", 4),
    ("[[gates.healthy]]\nresource = '{}'\nexpression = 'true'\n", 2),
    ("[nodes]\nselector = '{}'\n", 2),
]


@pytest.mark.parametrize("blank", [" ", "\t", " , "])
def test_a_blank_value_is_neither_the_default_nor_everything(blank: str, home: Path) -> None:
    for name in ("WINDOW", "NODE", "SELECTOR", "NOTIFY", "CONTEXT"):
        ended = rollout(home, "plan", variables={f"ROLLOUT_{name}": blank}).ends(ExitCode.USAGE)
        assert f"the variable ROLLOUT_{name}: {blank!r} is blank" in ended.stderr
    for name in ("gates.window", "nodes.selector", "gates.command"):
        ended = rollout(home, "plan", "--set", f"{name}={blank}").ends(ExitCode.USAGE)
        assert f"--set {name}: {blank!r} is blank" in ended.stderr
    for text, line in BLANK_TABLES:
        (home / "own.toml").write_text(text.format(blank), encoding="utf-8")
        ended = rollout(home, "plan", "-c", "own.toml").ends(ExitCode.USAGE)
        assert f"own.toml:{line}: " in ended.stderr
        assert f"{blank!r} is blank" in ended.stderr
    assert "--node" in rollout(home, "plan", "--node", blank).ends(ExitCode.USAGE).stderr


@pytest.mark.parametrize("value", ["5", "1.5", "['hosts']"])
@pytest.mark.parametrize(
    "name", ["output.journal", "metrics.textfile", "ssh.key", "reboot.pre-playbook"]
)
def test_a_path_is_text(name: str, value: str, home: Path) -> None:
    (home / "own.toml").write_text(f"{name} = {value}\n", encoding="utf-8")
    for arguments in (("plan",), ("manifests", "--image", "x/y:1", "--known-hosts", "hosts")):
        ended = rollout(home, *arguments, "-c", "own.toml").ends(ExitCode.USAGE)
        assert f"own.toml:1: {name}: expected a string" in ended.stderr


def test_a_bad_value_is_named_by_its_variable(home: Path) -> None:
    for name, value in (
        ("ROLLOUT_DRAIN_TIMEOUT", "10x"),
        ("ROLLOUT_SSH_PORT", "tcp://10.0.0.1:22"),
        ("ROLLOUT_WINDOW", "mon 25:00 1h"),
        ("ROLLOUT_SELECTOR", "a=b=c"),
        ("ROLLOUT_FORCE", "perhaps"),
    ):
        ended = rollout(home, "plan", variables={name: value}).ends(ExitCode.USAGE)
        assert f"the variable {name}: " in ended.stderr
        assert "--" not in ended.stderr.splitlines()[0]


def test_a_misspelt_variable_is_told_of(home: Path) -> None:
    variables = {
        "ROLLOUT_MAX_UNAVAILBLE": "secret-value",
        "ROLLOUT_WHATEVER_THIS_MAY_BE": "x",
        # none of these is a slip of the pen
        "ROLLOUT_DRAIN_TIMEOUT": "10m",
        "ROLLOUT_PROMETHEUS_TOKEN": "t",
        "ROLLOUT_SSH_KEY_PASSPHRASE": "p",
        "ROLLOUT_GATE_NODE": "worker-1",
        "ROLLOUT_SERVICE_HOST": "10.0.0.1",
        "ROLLOUT_PORT_8080_TCP_ADDR": "10.0.0.1",
    }
    ended = rollout(home, "plan", variables=variables)
    warnings = [line for line in ended.stderr.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        (
            "warning: ROLLOUT_MAX_UNAVAILBLE is not a rollout variable: did you mean"
            " ROLLOUT_MAX_UNAVAILABLE?"
        ),
        (
            "warning: ROLLOUT_WHATEVER_THIS_MAY_BE is not a rollout variable: "
            "only flags can be set in the environment; for other settings, use --set or --config"
        ),
    ]
    assert "secret-value" not in ended.stderr


# Odd input means what it says, or is refused with a sentence; it never does half of something, or
# something else.


Run = Callable[..., Ended]


OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


"""What terminals obey, or that turns the direction of text; ends of lines are ours."""


EVIL = "up\u009b2J\u0085\x7f\u202egnp\u2066.\u200f\u2028\ufeff"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def ended(lab: Lab, *arguments: str) -> Ended:
        return invoked(tmp_path, lab.environment, arguments)

    return ended


def test_nothing_that_a_terminal_obeys_is_printed(
    start_lab: StartLab, run: Run, tmp_path: Path
) -> None:
    """The text comes from whoever may write a Node's annotations, or a Lease."""
    lab = start_lab(nodes=3)
    write(lab, "worker-1", "annotations", **{"node-rollout.dev/last-result": EVIL})
    spec = {"holderIdentity": EVIL, "leaseDurationSeconds": 1}
    lease = {"metadata": {"name": "node-rollout", "namespace": "kube-system"}, "spec": spec}
    lab.call(
        lambda: lab.store.create(
            LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}
        )
    )
    inventory = run(lab, "inventory", "--list")
    annotations = json.loads(inventory.stdout)["_meta"]["hostvars"]["worker-1"][
        "rollout_annotations"
    ]
    assert annotations["last-result"] == {"__ansible_unsafe": EVIL}
    doctor = run(lab, "doctor", "-o", "json")
    messages = [check["message"] for check in json.loads(doctor.stdout)["checks"]]
    assert any("held by up\\x9b2J" in message for message in messages)
    text = run(lab, "doctor")
    assert "\\x9b2J" in text.stdout
    for ended in (inventory, doctor, text):
        assert not OBEYED.search(ended.stdout + ended.stderr)
