"""Hosts reached through a local command: ProxyCommand, and ssh's own for jump hosts."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rollout.adapters.ssh.config import with_ssh_config
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import HostKeyError, SshTimeoutError, SshUnreachableError
from rollout.model.host import Host

RELAY = "bash -c 'exec 3<>/dev/tcp/%h/%p; cat <&3 & exec cat >&3'"


def reached(server: Any, tmp_path: Path, text: str) -> Host:
    path = tmp_path / "config"
    path.write_text(text)
    return with_ssh_config({"a": server.host()}, path)["a"]


def children() -> str:
    return subprocess.run(
        ["ps", "-o", "comm=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
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
        ParamikoShell(known_hosts=server.known_hosts(tmp_path), key_file=key_file).run(
            host, "hello", timeout=60
        )
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


def test_a_command_that_says_nothing_has_the_deadline(
    server: Any, key_file: Path, tmp_path: Path
) -> None:
    shell = ParamikoShell(known_hosts=server.known_hosts(tmp_path), key_file=key_file)
    started = time.monotonic()
    with pytest.raises(SshTimeoutError):
        shell.run(replace(server.host(), proxy=("sleep", "60")), "hello", timeout=1)
    assert time.monotonic() - started < 30
    assert "sleep" not in children()


def test_known_hosts_and_alias_of_the_configuration(
    server: Any, key_file: Path, tmp_path: Path
) -> None:
    home = tmp_path / "own"
    home.write_text(
        server.known_hosts(tmp_path).read_text().replace(f"[127.0.0.1]:{server.port}", "node-a")
    )
    shell = ParamikoShell(key_file=key_file)
    text = f"Host *\n  HostKeyAlias node-a\n  UserKnownHostsFile {home}\n"
    assert shell.run(reached(server, tmp_path, text), "hello", timeout=60).exit_status == 3
    with pytest.raises(HostKeyError, match="unknown"):
        shell.run(reached(server, tmp_path, text.replace("node-a", "node-b")), "hello", timeout=60)
    with pytest.raises(HostKeyError, match="no such file"):
        shell.run(
            reached(server, tmp_path, text.replace(str(home), f"{home}-none")), "hello", timeout=60
        )
