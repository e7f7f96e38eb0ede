"""Passphrases of keys: asked for once on a terminal, and nowhere else."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from rollout.adapters.ssh.config import with_ssh_config
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import HostKeyError, SshTimeoutError, SshUnreachableError
from rollout.model.host import Host

# Four hosts in twice as many threads, whose configuration names one encrypted key.
PROGRAM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.adapters.ssh.keys import ask_on_terminal
from rollout.errors import SshError
from rollout.model.host import Host, Identities

port, known, key = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
shell = ParamikoShell(known_hosts=known, ask=ask_on_terminal)
hosts = [Host(f"h{n}", "127.0.0.1", port, "core", identities=Identities((key,))) for n in range(4)]
if "unlock" in sys.argv:
    shell.unlock(hosts)
    print("unlocked")

def ask(host):
    try:
        return shell.run(host, "hello", timeout=30).stdout
    except SshError as error:
        return type(error).__name__ + ": " + error.message

with ThreadPoolExecutor(8) as pool:
    for answer in pool.map(ask, hosts * 2):
        print(answer.strip())
print("the end")
"""


@pytest.fixture
def key(client_key: asyncssh.SSHKey, tmp_path: Path) -> Path:
    path = tmp_path / "id_locked"
    client_key.write_private_key(path, passphrase="open sesame", rounds=1, ignore_few_rounds=True)
    path.chmod(0o600)
    return path


def on_a_terminal(command: list[str], entered: list[str]) -> str:
    """Run a command on a terminal of its own, and enter a line at each question; what the screen shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment()
    )
    os.close(theirs)
    screen, left, deadline = "", list(entered), time.monotonic() + 60
    try:
        while time.monotonic() < deadline and select.select([ours], [], [], 30)[0]:
            try:
                screen += os.read(ours, 4096).decode()
            except OSError:
                break
            if left and screen.count("Passphrase for") > len(entered) - len(left):
                os.write(ours, f"{left.pop(0)}\n".encode())
    finally:
        os.close(ours)
        process.kill()
        process.wait()
    return screen


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def program(server: Any, key: Path, *options: str) -> list[str]:
    known = server.known_hosts(key.parent)
    return [sys.executable, "-c", PROGRAM, str(server.port), str(known), str(key), *options]


@pytest.mark.parametrize("options", [(), ("unlock",)])
def test_is_asked_for_once(server: Any, key: Path, options: tuple[str, ...]) -> None:
    screen = on_a_terminal(program(server, key, *options), ["open sesame"])
    assert screen.count("you said: hello") == 8, screen
    assert screen.count(f"Passphrase for {key}: ") == 1
    assert "sesame" not in screen
    assert ("unlocked" in screen) == bool(options)


@pytest.mark.parametrize("entered", [["a", "b", "c"], [""]])
def test_is_not_asked_for_again_by_each_host(server: Any, key: Path, entered: list[str]) -> None:
    screen = on_a_terminal(program(server, key), entered)
    assert screen.count("Passphrase for") == len(entered)
    assert screen.count("SshAuthError") == 8, screen
    assert "the end" in screen


def test_time_that_an_operator_takes_is_no_hosts(server: Any, key: Path) -> None:
    def slowly(_: Path) -> str:
        time.sleep(3.2)
        return "open sesame"

    shell = ParamikoShell(known_hosts=server.known_hosts(key.parent), ask=slowly)
    assert shell.run(server.host(key_file=str(key)), "x", timeout=3).exit_status == 3


def test_one_passphrase_opens_all_keys_that_have_it(server: Any, key: Path, tmp_path: Path) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    other.write_private_key(tmp_path / "other", passphrase="open sesame", rounds=1, ignore_few_rounds=True)
    (tmp_path / "other").chmod(0o600)
    asked = list[Path]()

    def answer(file: Path) -> str:
        asked.append(file)
        return "open sesame"

    shell = ParamikoShell(known_hosts=server.known_hosts(tmp_path), key_file=tmp_path / "other", ask=answer)
    assert shell.run(server.host(key_file=str(key)), "x", timeout=30).exit_status == 3
    assert asked == [tmp_path / "other"]


# Hosts reached through a local command: ProxyCommand, and ssh's own for jump hosts.


RELAY = "bash -c 'exec 3<>/dev/tcp/%h/%p; cat <&3 & exec cat >&3'"


def reached(server: Any, tmp_path: Path, text: str) -> Host:
    path = tmp_path / "config"
    path.write_text(text)
    return with_ssh_config({"a": server.host()}, path)["a"]


def children() -> str:
    return subprocess.run(
        ["ps", "-o", "comm=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash relays")
def test_through_a_command(server: Any, key_file: Path, tmp_path: Path) -> None:
    shell = ParamikoShell(known_hosts=server.known_hosts(tmp_path), key_file=key_file)
    host = reached(server, tmp_path, f"Host *\n  ProxyCommand {RELAY}\n")
    for _ in range(3):
        assert shell.run(host, "hello", timeout=60).stdout == "you said: hello\n"
    assert "bash" not in children()
    assert "cat" not in children()


def test_a_command_is_not_given_our_secrets(
    server: Any, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROLLOUT_SSH_KEY_PASSPHRASE", "ROLLOUT_PROMETHEUS_TOKEN"):
        monkeypatch.setenv(name, "a secret")
    host = reached(server, tmp_path, f"Host *\n  ProxyCommand env > {tmp_path}/seen\n")
    with pytest.raises(SshUnreachableError):
        ParamikoShell(known_hosts=server.known_hosts(tmp_path), key_file=key_file).run(host, "hello", timeout=60)
    seen = (tmp_path / "seen").read_text()
    assert "PATH=" in seen
    assert "a secret" not in seen


def test_a_command_that_fails(server: Any, key_file: Path, tmp_path: Path) -> None:
    shell = ParamikoShell(known_hosts=server.known_hosts(tmp_path), key_file=key_file)
    host = replace(server.host(), proxy=("false",))
    with pytest.raises(SshUnreachableError, match="its jump host or proxy ended the connection"):
        shell.run(host, "hello", timeout=60)
    with pytest.raises(SshUnreachableError, match="No such file"):
        shell.run(replace(host, proxy=("/nowhere/at-all",)), "hello", timeout=60)


def test_a_command_that_says_nothing_has_the_deadline(server: Any, key_file: Path, tmp_path: Path) -> None:
    shell = ParamikoShell(known_hosts=server.known_hosts(tmp_path), key_file=key_file)
    started = time.monotonic()
    with pytest.raises(SshTimeoutError):
        shell.run(replace(server.host(), proxy=("sleep", "60")), "hello", timeout=1)
    assert time.monotonic() - started < 30
    assert "sleep" not in children()


def test_known_hosts_and_alias_of_the_configuration(server: Any, key_file: Path, tmp_path: Path) -> None:
    home = tmp_path / "own"
    home.write_text(server.known_hosts(tmp_path).read_text().replace(f"[127.0.0.1]:{server.port}", "node-a"))
    shell = ParamikoShell(key_file=key_file)
    text = f"Host *\n  HostKeyAlias node-a\n  UserKnownHostsFile {home}\n"
    assert shell.run(reached(server, tmp_path, text), "hello", timeout=60).exit_status == 3
    with pytest.raises(HostKeyError, match="unknown"):
        shell.run(reached(server, tmp_path, text.replace("node-a", "node-b")), "hello", timeout=60)
    with pytest.raises(HostKeyError, match="no such file"):
        shell.run(reached(server, tmp_path, text.replace(str(home), f"{home}-none")), "hello", timeout=60)


def test_nobody_is_asked_by_a_job_that_has_a_terminal_but_no_input(server: Any, key: Path) -> None:
    screen = on_a_terminal(["sh", "-c", 'exec "$@" </dev/null', "-", *program(server, key)], [])
    assert screen.count("SshAuthError") == 8, screen
    assert f"key file {key}: it is encrypted" in screen
    assert "Passphrase" not in screen
