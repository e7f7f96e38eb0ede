"""Every answer a host can give is a file in fixtures/probe; a new case is a new file."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rollout.gather.hosts.probe import parse_probe
from rollout.gather.hosts.probe_command import (
    MARKER,
    PROBE_COMMAND,
    REBOOT_COMMAND,
    REBOOTING_UNITS,
    USUAL_PROBE,
    Probe,
)
from rollout.model.detection import DEFAULT_SOURCES, Sign, Source, SourceAnswer
from rollout.model.host import Host, HostFacts, ProbeFailure
from rollout.ports import CommandResult

FIXTURES = Path(__file__).parent / "fixtures" / "probe"


UNIT_QUESTIONS = [
    f"is-active {' '.join(REBOOTING_UNITS)}",
    "show -p ExecStart bootc-fetch-apply-updates.service",
]


EVERYTHING = Probe(tuple(Source), "true")


HOST = Host("worker-1", "192.0.2.11")


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FIXTURES / f"{name}.yaml").read_text())
    return loaded


def written(sections: Mapping[str, str | None]) -> str:
    return "".join(
        f"\n{MARKER} {name}\n{text}" for name, text in sections.items() if text is not None
    )


def answer(case: Mapping[str, Any]) -> CommandResult:
    """What the host printed: raw where the case says so, else the healthy host with the case's
    changes.
    """
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
    probe = Probe(
        tuple(map(Source, case.get("detect", DEFAULT_SOURCES))),
        unwanted_version=case.get("rollback", ""),
    )
    observation = parse_probe(HOST, answer(case), probe)
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
    assert [
        {key: sign[key] for key in wanted} for sign, wanted in zip(got["signs"], signs, strict=True)
    ] == list(signs)
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


ASKED = (
    "reboot-required",
    "reboot-required-packages",
    "rpm-ostree",
    "rpm-ostree-lock",
    "command",
    "other-slot",
)


SECTIONS = (*load("healthy")["sections"], *ASKED)


DEPLOYMENT = '{"deployments": [{"checksum": "\\u001b[2J", "booted": true, "version": "\\u202e"}]}'


WORDS = (
    "CURRENT_OP=",
    "CURRENT_OP=(null)",
    'xdssx 0 0 "" "" 0',
    "@@exit 999",
    "PROGRESS=--",
    "GROUP='",
    'ID="',
)


VALUES = st.text() | st.sampled_from((*WORDS, "needed", "@@exit 0", DEPLOYMENT))


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(SECTIONS), st.lists(VALUES).map("\n".join)), st.text())
def test_any_section_may_be_junk(junk: dict[str, str], stderr: str) -> None:
    case = {"sections": junk}
    observation = parse_probe(HOST, CommandResult(0, answer(case).stdout, stderr), EVERYTHING)
    assert_showable(observation)


MEBIBYTE = 1 << 20


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("inhibitors", '\\"' * (MEBIBYTE // 2)),
        ("inhibitors", ' "' * (MEBIBYTE // 2)),
        ("sudo-rules", "\n    (root) " + "[" * MEBIBYTE),
        ("sudo-rules", "\n    (root) " + "*a" * (MEBIBYTE // 2)),
        ("may-reboot", "failed to run command" * (MEBIBYTE // 21)),
    ],
)
def test_no_answer_takes_long_to_read(section: str, text: str) -> None:
    case = {"sections": {"may-reboot": "no 1", section: text}, "complaints": {section: text}}
    assert isinstance(parse_probe(HOST, answer(case)), HostFacts)


def test_a_number_of_thousands_of_digits_is_no_setting() -> None:
    file = "@@file /etc/zincati/config.d/50-a.toml"
    case = {"sections": {"zincati": f"active\n{file}\nupdates.enabled = {'9' * 5000}\n"}}
    observation = parse_probe(HOST, answer(case))
    assert isinstance(observation, HostFacts)
    assert observation.zincati_strategy == "immediate"


def answered(stdout: str) -> CommandResult:
    return CommandResult(0, stdout, "")


# The commands run under real shells, with the hosts' tools replaced by scripts on PATH.


STAGED = """
echo 'I0214 10:22:03.1  12 client.cc:1] Querying' >&2
printf 'LAST_CHECKED_TIME=1\\nPROGRESS=0.000000\\nCURRENT_OP=UPDATE_STATUS_UPDATED_NEED_REBOOT\\n'
printf 'NEW_VERSION=3815.2.1\\nNEW_SIZE=5\\n'
"""


DENIED = (
    "printf"
    " 'LAST_CHECKED_TIME=0\\nPROGRESS=0.000000\\nCURRENT_OP=(null)\\nNEW_VERSION=(null)\\nNEW_SIZE=0\\n'"
)


BUS = """printf 'xdssx 1 0 "UPDATE_STATUS_UPDATED_NEED_REBOOT" "3815.2.1" 5\\n'"""


SUDO = (
    '[ "$1" = -n ] && shift; if [ "$1" = -l ]; then echo "/usr/bin/$2 $3"; else AS_ROOT=1 "$@"; fi'
)


ONLY_ROOT = "if [ -z \"$AS_ROOT\" ]; then echo 'Call failed: Access denied' >&2; exit 1; fi; "


SHELLS = [pytest.param(shell, id=shell) for shell in ("sh", "bash", "dash") if shutil.which(shell)]


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder that is the whole PATH: coreutils, and `id` as an ordinary user."""
    for name in ("cat", "env", "head", "sh", "sleep", "tail", "timeout"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    script(tmp_path, "id", "echo 500")
    script(tmp_path, "systemctl", 'echo "$*" >> "$CALLS"; echo inactive; exit 3')
    return tmp_path


def script(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def run(shell: str, tools: Path, command: str = PROBE_COMMAND) -> CommandResult:
    environment = {"PATH": str(tools), "CALLS": str(tools / "calls"), "HOME": os.devnull}
    done = subprocess.run(
        [str(shutil.which(shell)), "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def probe(shell: str, tools: Path, question: Probe = USUAL_PROBE) -> HostFacts:
    result = run(shell, tools, question.command)
    assert result.exit_status == 0
    facts = parse_probe(Host("worker-1", "192.0.2.11"), result, question)
    assert isinstance(facts, HostFacts), facts
    return facts


@pytest.mark.parametrize("shell", SHELLS)
def test_client_answers(shell: str, tools: Path) -> None:
    script(tools, "update_engine_client", STAGED)
    script(tools, "sudo", SUDO)
    script(tools, "busctl", 'case $* in *ListInhibitors) ;; *) echo "$*" >> "$CALLS" ;; esac')
    facts = probe(shell, tools)
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.update.needs_reboot
    assert facts.update.new_version == "3815.2.1"
    assert facts.may_reboot
    assert not facts.locksmithd_active
    # Nothing but the questions about units: asking is not rebooting, and an answered question is
    # not asked again.
    *units, service = (tools / "calls").read_text().splitlines()
    assert units == UNIT_QUESTIONS
    assert service.startswith("show ")
    assert service.endswith(" update-engine.service")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("client", [DENIED, None], ids=["denied", "missing"])
def test_bus_is_asked_where_the_client_does_not_answer(
    shell: str, tools: Path, client: str | None
) -> None:
    if client:
        script(tools, "update_engine_client", client)
    script(tools, "busctl", BUS)
    facts = probe(shell, tools)
    assert facts.update.needs_reboot
    assert facts.update.new_version == "3815.2.1"
    assert not facts.may_reboot


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("client", "bus"),
    [(DENIED, ONLY_ROOT + BUS), (ONLY_ROOT + STAGED, None)],
    ids=["bus", "client"],
)
def test_root_is_asked_last(shell: str, tools: Path, client: str, bus: str | None) -> None:
    script(tools, "update_engine_client", client)
    script(tools, "sudo", SUDO)
    if bus:
        script(tools, "busctl", bus)
    assert probe(shell, tools).update.needs_reboot


@pytest.mark.parametrize("shell", SHELLS)
def test_a_who_or_an_rpm_ostree_that_hangs_leaves_the_other_answers(
    shell: str, tools: Path
) -> None:
    (tools / "timeout").unlink()
    script(tools, "timeout", f'shift; exec {shutil.which("timeout")} 0.2 "$@"')
    script(tools, "update_engine_client", STAGED)
    for name in ("who", "rpm-ostree"):
        script(tools, name, "exec sleep 30")
    facts = probe(shell, tools, Probe((Source.UPDATE_ENGINE, Source.RPM_OSTREE)))
    assert facts.update.needs_reboot
    assert facts.users is None
    (ostree,) = facts.signs
    assert ostree.answer == SourceAnswer.NONE
    assert "rpm-ostree did not respond" in ostree.detail


@pytest.mark.parametrize("shell", SHELLS)
def test_the_time_of_a_check_is_read_in_any_time_zone(shell: str, tools: Path) -> None:
    script(
        tools,
        "systemctl",
        "echo LoadState=loaded; echo ActiveState=active\n"
        'echo "LastTriggerUSec=Wed 2024-02-14 10:22:03 ${TZ:-CET}"',
    )
    checks = probe(shell, tools, Probe((Source.RPM_OSTREE,))).checks
    assert checks.last == datetime(2024, 2, 14, 10, 22, 3, tzinfo=UTC)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("user", "through"), [("0", "systemctl reboot"), ("500", "sudo -n systemctl reboot")]
)
def test_reboot(shell: str, tools: Path, user: str, through: str) -> None:
    script(tools, "id", f"echo {user}")
    script(tools, "sudo", 'echo "sudo $*" >> "$CALLS"')
    script(tools, "systemctl", 'echo "systemctl $*" >> "$CALLS"')
    assert run(shell, tools, REBOOT_COMMAND).exit_status == 0
    assert (tools / "calls").read_text().strip() == through


def sign(shell: str, tools: Path, source: Source, sentinel: str = "") -> Sign:
    """What a host says that is asked by this source alone."""
    (only,) = probe(shell, tools, Probe((source,), sentinel)).signs
    return only


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("sentinel", "answer", "said"),
    [
        ("true", SourceAnswer.NEEDED, "exited with 0"),
        (
            "echo 'a \"quoted\" $HOME word'",
            SourceAnswer.NEEDED,
            'exited with 0: a "quoted" $HOME word',
        ),
        ("exit 1", SourceAnswer.NOT_NEEDED, "exited with 1"),
        ("! true", SourceAnswer.NOT_NEEDED, "exited with 1"),
        ("test -e /nowhere -o -e /no/where", SourceAnswer.NOT_NEEDED, "exited with 1"),
        ("[", SourceAnswer.NOT_NEEDED, "exited with"),
        ("no-such-command", SourceAnswer.NONE, "exit status 127"),
        ("kill -9 $$", SourceAnswer.NONE, "exit status 137"),
        ("if", SourceAnswer.NOT_NEEDED, "exited with 2"),
        # more than is kept: the end of it is shown, and its exit status is
        (
            "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; exit 0",
            SourceAnswer.NEEDED,
            "exited with 0",
        ),
        ("cat; exit 3", SourceAnswer.NOT_NEEDED, "exited with 3"),
    ],
)
def test_an_own_command(
    shell: str, tools: Path, sentinel: str, answer: SourceAnswer, said: str
) -> None:
    got = sign(shell, tools, Source.COMMAND, sentinel)
    assert (got.answer, said in got.detail) == (answer, True), got


def test_an_own_command_that_hangs_or_floods_is_cut_off(tools: Path) -> None:
    (tools / "timeout").unlink()
    script(tools, "timeout", f'shift; exec {shutil.which("timeout")} 0.3 "$@"')
    for sentinel in ("sleep 30", "sleep 30 & sleep 30", "while :; do echo flood; done"):
        result = run("sh", tools, Probe((Source.COMMAND,), sentinel).command)
        assert len(result.stdout) < 10_000
        assert sign("sh", tools, Source.COMMAND, sentinel).answer is SourceAnswer.NONE


@pytest.mark.parametrize("shell", SHELLS)
def test_a_source_that_is_not_named_is_not_asked(shell: str, tools: Path) -> None:
    script(tools, "update_engine_client", 'echo client >> "$CALLS"')
    script(tools, "rpm-ostree", 'echo ostree >> "$CALLS"')
    script(tools, "busctl", "exit 1")
    got = sign(shell, tools, Source.REBOOT_REQUIRED)
    expected = (
        SourceAnswer.NEEDED if Path("/run/reboot-required").exists() else SourceAnswer.NOT_NEEDED
    )
    assert got.answer is expected
    assert (tools / "calls").read_text().splitlines() == UNIT_QUESTIONS
