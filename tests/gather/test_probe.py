"""Every answer a host can give is a file in fixtures/probe; a new case is a new file."""

import pty
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rollout.gather.hosts.probe import PROBE_COMMAND, REBOOT_COMMAND, parse_probe
from rollout.gather.hosts.probe_command import MARKER, Probe
from rollout.gather.hosts.users import WALL_MESSAGE, WHO_COMMAND, parse_users, wall_command
from rollout.model.detection import DEFAULT_SOURCES, Source
from rollout.model.host import Host, HostFacts, ProbeFailure
from rollout.ports import CommandResult

FIXTURES = Path(__file__).parent / "fixtures" / "probe"


EVERYTHING = Probe(tuple(Source), "true")


HOST = Host("worker-1", "192.0.2.11")


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FIXTURES / f"{name}.yaml").read_text())
    return loaded


def written(sections: Mapping[str, str | None]) -> str:
    return "".join(f"\n{MARKER} {name}\n{text}" for name, text in sections.items() if text is not None)


def answer(case: Mapping[str, Any]) -> CommandResult:
    """What the host printed: raw where the case says so, else the healthy host with the case's changes."""
    if "stdout" in case:
        return CommandResult(case["exit_status"], case["stdout"], case["stderr"])
    base = load("healthy")
    merged = base["sections"] | case.get("sections", {})
    order = [name for name in merged if name != "end"] + ["end"]
    stdout = case.get("noise", "") + written({name: merged[name] for name in order})
    stderr = written(base["complaints"] | case.get("complaints", {}))
    newline = "\r\n" if case.get("crlf") else "\n"
    return CommandResult(case.get("exit_status", 0), stdout.replace("\n", newline), stderr)


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.yaml")))
def test_answer(name: str) -> None:
    case = load(name)
    observation = parse_probe(HOST, answer(case), Probe(tuple(map(Source, case.get("detect", DEFAULT_SOURCES)))))
    if "failure" in case:
        assert isinstance(observation, ProbeFailure), observation
        assert {key: getattr(observation, key) for key in case["failure"]} == case["failure"]
        return
    assert isinstance(observation, HostFacts), observation
    got = msgspec.json.decode(msgspec.json.encode(observation))
    expected = case["expect"]
    update = expected.get("update", {})
    assert {key: got["update"][key] for key in update} == update
    signs = expected.get("signs", got["signs"])
    assert [{key: sign[key] for key in wanted} for sign, wanted in zip(got["signs"], signs, strict=True)] == list(signs)
    rest = {key: value for key, value in expected.items() if key not in {"update", "signs"}}
    assert {key: got[key] for key in rest} == rest


def assert_showable(observation: HostFacts | ProbeFailure) -> None:
    texts = [value for value in msgspec.to_builtins(observation).values() if isinstance(value, str)]
    if isinstance(observation, HostFacts):
        texts += [observation.update.message, observation.update.new_version]
        texts += [sign.detail for sign in observation.signs]
    assert all(text.isprintable() and len(text) < 400 for text in texts)


@given(st.binary(max_size=400), st.binary(max_size=200), st.none() | st.integers(0, 255))
def test_any_bytes_give_an_observation(stdout: bytes, stderr: bytes, status: int | None) -> None:
    result = CommandResult(status, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    assert_showable(parse_probe(HOST, result, EVERYTHING))


ASKED = ("reboot-required", "reboot-required-packages", "rpm-ostree", "rpm-ostree-lock", "command")


SECTIONS = (*load("healthy")["sections"], *ASKED)


DEPLOYMENT = '{"deployments": [{"checksum": "\\u001b[2J", "booted": true, "version": "\\u202e"}]}'


WORDS = ("CURRENT_OP=", "CURRENT_OP=(null)", 'xdssx 0 0 "" "" 0', "@@exit 999", "PROGRESS=--", "GROUP='", 'ID="')


VALUES = st.text() | st.sampled_from((*WORDS, "needed", "@@exit 0", DEPLOYMENT))


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(SECTIONS), st.lists(VALUES).map("\n".join)), st.text())
def test_any_section_may_be_junk(junk: dict[str, str], stderr: str) -> None:
    case = {"sections": junk}
    observation = parse_probe(HOST, CommandResult(0, answer(case).stdout, stderr), EVERYTHING)
    assert_showable(observation)


def test_commands_are_constant_text() -> None:
    for command in (PROBE_COMMAND, REBOOT_COMMAND):
        assert command.isascii()
        assert "{" not in command.replace("() {", "")


# Who is logged in, as a real `who` says it; the answers of others are fixtures of the probe.


def answered(stdout: str) -> CommandResult:
    return CommandResult(0, stdout, "")


@pytest.mark.skipif(shutil.which("who") is None, reason="no who here")
@pytest.mark.parametrize("terminal", [True, False])
def test_a_real_who_gives_an_answer_that_is_understood(*, terminal: bool) -> None:
    master, slave = pty.openpty() if terminal else (None, subprocess.DEVNULL)
    done = subprocess.run(["sh", "-c", WHO_COMMAND], stdin=slave, capture_output=True, text=True, check=True)
    assert parse_users(answered(done.stdout)) is not None
    assert ("TTY=/dev/pts/" in done.stdout) == terminal, master


def test_what_a_login_shell_says_before_is_no_user() -> None:
    users = parse_users(answered("core pts/9 now\n@@exit 0\n@@rollout-probe users\nTTY=\ncore pts/1 now\n@@exit 0\n"))
    assert users is not None
    assert [str(user) for user in users] == ["core (pts/1)"]


def test_the_message_is_never_a_command(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What reaches `wall` is what was written, and nothing of it is run."""
    folder = tmp_path_factory.mktemp("bin")
    for name, body in (("id", "echo 500"), ("sudo", "exit 1"), ("wall", "cat")):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    (folder / "cat").symlink_to(str(shutil.which("cat")))
    for message in (WALL_MESSAGE, "'; touch /tmp/x; '", "$(id) `id` \\n %s -x"):
        words = [str(shutil.which("sh")), "-c", wall_command(message)]
        done = subprocess.run(words, env={"PATH": str(folder)}, capture_output=True, text=True, check=True)
        assert done.stdout == f"{message}\n"
