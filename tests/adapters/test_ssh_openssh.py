"""The shell against OpenSSH's own server: users' certificates, throttling, silence, jump hosts."""

import getpass
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout.adapters.ssh.config import with_ssh_config
from rollout.adapters.ssh.failures import Offer
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import SshAuthError, SshError, SshStalledError, SshUnreachableError
from rollout.gather.hosts.probe import BOOT_COMMAND, parse_boot
from rollout.gather.inventory import SshOptions
from rollout.model.host import Host, Identities
from tests.adapters.openssh import (
    MISSING,
    Sshd,
    add_to_agent,
    certify,
    is_here,
    keygen,
    new_key,
    public,
    ssh_agent,
    sshd,
)

pytestmark = [pytest.mark.skipif(not is_here(), reason=MISSING), pytest.mark.usefixtures("home")]


KINDS = ["ed25519", "ecdsa", "rsa"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_key(tmp_path_factory.mktemp("authority") / "ca")


@contextmanager
def trusting(
    folder: Path, key: Path, *options: str, host_keys: tuple[Path, ...] = ()
) -> Iterator[Sshd]:
    """A server that lets this key in."""
    with sshd(
        folder / "sshd", f"AuthorizedKeysFile {key}.pub", *options, host_keys=host_keys
    ) as server:
        yield server


def greeted(shell: ParamikoShell, host: Host) -> bool:
    return shell.run(host, "echo hello", timeout=30).stdout == "hello\n"


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory, authority: Path) -> Iterator[Sshd]:
    """A server that lets in whom the authority has certified, and nobody else."""
    with sshd(tmp_path_factory.mktemp("certified"), f"TrustedUserCAKeys {authority}.pub") as server:
        yield server


@pytest.mark.parametrize("kind", KINDS)
def test_certificate_beside_the_key(
    certified: Sshd, authority: Path, tmp_path: Path, kind: str
) -> None:
    key = new_key(tmp_path / "id_own", kind)
    shell = ParamikoShell(known_hosts=certified.known_hosts(), key_file=key)
    with pytest.raises(SshAuthError, match=r"refuses user .* with key SHA256"):
        shell.run(certified.host(), "true", timeout=30)
    certify(authority, key, "-n", certified.user)
    assert greeted(shell, certified.host())


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One without a person: it declines to sign where a key asks for consent."""
    path = tmp_path / "agent"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    with ssh_agent(path):
        yield path


@pytest.mark.parametrize("kind", KINDS)
def test_certificate_that_the_agent_holds(
    certified: Sshd, authority: Path, agent: Path, tmp_path: Path, kind: str
) -> None:
    key = new_key(tmp_path / "held", kind)
    certify(authority, key, "-n", certified.user)
    add_to_agent(key)
    key.unlink()
    assert greeted(ParamikoShell(known_hosts=certified.known_hosts()), certified.host())
    assert agent.exists()


def test_encrypted_key_that_the_agent_holds(agent: Path, tmp_path: Path) -> None:
    key = new_key(tmp_path / "id")
    with trusting(tmp_path, key) as server:
        known = server.known_hosts()
        shell = ParamikoShell(known_hosts=known)
        add_to_agent(key)
        keygen("-p", "-N", "secret", "-f", key)
        named = replace(server.host(), key_file=str(key))
        configured = replace(server.host(), identities=Identities((str(key),), only=True))
        only_public = replace(server.host(), key_file=f"{key}.pub")
        assert all(greeted(shell, host) for host in (named, configured, only_public))
        elsewhere = replace(configured, identities=Identities((str(key),), agent=str(agent)))
        without = replace(configured, identities=Identities((str(key),), agent=""))
        os.environ["SSH_AUTH_SOCK"] = "/nowhere"
        assert greeted(shell, elsewhere)
        with pytest.raises(SshAuthError, match="it is encrypted"):
            ParamikoShell(known_hosts=known).run(without, "true", timeout=30)


@pytest.mark.parametrize("silent", ["before an answer", "after the last byte"])
def test_host_that_falls_silent_is_given_up_at_the_deadline(
    tmp_path: Path, key: Path, silent: str
) -> None:
    begun = tmp_path / "begun"
    command = (
        f"touch {begun}; sleep 300"
        if silent == "before an answer"
        else f"exec 1>&- 2>&-; touch {begun}; sleep 300"
    )
    with trusting(tmp_path, key) as server:

        def freeze() -> None:
            while not begun.exists():
                time.sleep(0.02)
            server.signal_all(signal.SIGSTOP)

        thread = threading.Thread(target=freeze)
        thread.start()
        shell = ParamikoShell(known_hosts=server.known_hosts(), key_file=key)
        started = time.monotonic()
        with pytest.raises(
            SshStalledError, match="no response within 5 s while running the command"
        ):
            shell.run(server.host(), command, timeout=5)
        assert time.monotonic() - started < 20
        thread.join()


def ssh_children() -> list[str]:
    told = subprocess.run(
        ["ps", "-o", "comm=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in told.stdout.split() if name != "ps" and not name.startswith("sshd")]


@pytest.fixture
def jump(tmp_path: Path, key: Path) -> Iterator[tuple[Sshd, Path]]:
    """A server, and a configuration that leads to it through itself: `jump` and, for a chain,
    `second`.
    """
    with trusting(tmp_path, key) as server:
        known = server.known_hosts()
        hop = (
            f"  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n  IdentityFile"
            f" {key}\n"
        )
        hop += f"  UserKnownHostsFile {known}\n"
        config = tmp_path / "config"
        config.write_text(f"Host jump\n{hop}Host second\n{hop}Host 127.0.0.1\n  ProxyJump jump\n")
        yield server, config


@pytest.mark.parametrize("chain", ["jump", "jump,second"])
def test_jump_hosts(jump: tuple[Sshd, Path], key: Path, chain: str) -> None:
    server, config = jump
    before = ssh_children()
    config.write_text(config.read_text().replace("ProxyJump jump", f"ProxyJump {chain}"))
    host = with_ssh_config({"a": server.host()}, config)["a"]
    assert "-J" in host.proxy or chain == "jump"
    shell = ParamikoShell(known_hosts=server.known_hosts(), key_file=key)
    assert greeted(shell, host)
    assert ssh_children() == before


def test_a_jump_host_with_a_user_and_an_encrypted_key_of_its_own(
    tmp_path: Path, agent: Path
) -> None:
    """The agent opens the key for the jump host, and nothing else does: its `ssh` has nobody to
    ask.
    """
    key = new_key(tmp_path / "id")
    with trusting(tmp_path, key) as server:
        add_to_agent(key)
        keygen("-p", "-N", "secret", "-f", key)
        config = tmp_path / "config"
        config.write_text(
            f"Host bastion\n  HostName 127.0.0.1\n  Port {server.port}\n  User nobody\n "
            f" IdentityFile {key}\n  UserKnownHostsFile {server.known_hosts()}\nHost 127.0.0.1\n "
            f" IdentityFile {key}\n  ProxyJump {server.user}@bastion\n"
        )
        host = with_ssh_config({"a": server.host()}, config)["a"]
        shell = ParamikoShell(known_hosts=server.known_hosts(), passphrase="secret")
        assert greeted(shell, host)
        assert agent.exists()
        os.environ["SSH_AUTH_SOCK"] = "/nowhere"
        with pytest.raises(SshError, match=r"bastion|jump|Permission denied"):
            ParamikoShell(known_hosts=server.known_hosts(), passphrase="secret").run(
                host, "true", timeout=15
            )


# Where OpenSSH's client gets in, the shell does as well: servers that allow little, agents that
# decline.


def test_one_session_a_connection_is_enough_to_ask_and_to_act(tmp_path: Path, key: Path) -> None:
    """sshd counts a session until it has noticed its end, which may come after the next one is
    asked for.
    """
    with trusting(tmp_path, key, "MaxSessions 1") as server:
        shell = ParamikoShell(known_hosts=server.known_hosts(), key_file=key)
        for _ in range(5):
            told = shell.run_if(
                server.host(), "echo 1", lambda answer: answer.stdout == "1\n", "echo 2", timeout=30
            )
            assert told is not None
            assert told.stdout == "2\n"


@pytest.mark.parametrize("principals", ["", "somebody"])
def test_the_next_key_is_tried_where_the_agent_declines_to_sign(
    agent: Path, key: Path, tmp_path: Path, principals: str
) -> None:
    declined = new_key(tmp_path / "declined")
    if principals:
        certify(new_key(tmp_path / "ca"), declined, "-n", principals)
    add_to_agent("-c", declined)
    add_to_agent(key)
    both = tmp_path / "both.pub"
    both.write_text(f"{public(declined)}\n{public(key)}\n")
    with sshd(tmp_path / "sshd", f"AuthorizedKeysFile {both}") as server:
        assert greeted(ParamikoShell(known_hosts=server.known_hosts()), server.host())
    assert agent.exists()


def test_a_host_that_ends_the_login_after_wrong_keys_is_not_going_down(
    agent: Path, key: Path, tmp_path: Path
) -> None:
    for number in range(3):
        add_to_agent(new_key(tmp_path / f"wrong-{number}"))
    add_to_agent(key)
    with trusting(tmp_path, key, "MaxAuthTries 2") as server:
        with pytest.raises(
            SshAuthError, match=r"accepts no more keys from user \S+ after SHA256"
        ) as all_keys:
            ParamikoShell(known_hosts=server.known_hosts()).run(server.host(), "true", timeout=30)
        assert "--ssh-key" in all_keys.value.hint
        assert greeted(ParamikoShell(known_hosts=server.known_hosts(), key_file=key), server.host())
    assert agent.exists()


def test_an_id_that_a_login_shell_prints_is_no_boots(tmp_path: Path, key: Path) -> None:
    """Nor is a version of its own: a host would count as rebooted that was not even asked."""
    noise = "echo 11111111-2222-4333-8444-555555555555; echo VERSION=9.9.9; printf unfinished"
    shout = tmp_path / "shout"
    shout.write_text(f'#!/bin/sh\n{noise}\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    shout.chmod(0o755)
    with trusting(tmp_path, key, f"ForceCommand {shout}") as server:
        shell = ParamikoShell(known_hosts=server.known_hosts(), key_file=key)
        answer = shell.run(server.host(), BOOT_COMMAND, timeout=30)
    facts = parse_boot(answer)
    assert answer.stdout.startswith("11111111-2222-4333-8444-555555555555\n")
    assert facts is not None
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.running_version != "9.9.9"


def test_the_inventory_hands_the_identities_of_a_configuration_on(
    tmp_path: Path, key: Path, agent: Path
) -> None:
    """A client that is given an address finds no block of a name: what stands there goes along, for
    OpenSSH itself.
    """
    folder = tmp_path / "our keys"
    folder.mkdir()
    authority = new_key(tmp_path / "ca")
    certify(authority, key, "-n", getpass.getuser()).rename(folder / "key-cert.pub")
    key.rename(folder / "key")
    (folder / "agent").symlink_to(agent)
    with sshd(tmp_path / "sshd", f"TrustedUserCAKeys {authority}.pub") as server:
        known = server.known_hosts().rename(folder / "known")
        config = tmp_path / "config"
        config.write_text(
            f'Host worker-1\n  IdentityFile "{folder}/key"\n  IdentitiesOnly yes\n'
            f'  IdentityAgent "{folder}/agent"\n  UserKnownHostsFile "{known}" /dev/null\n'
        )
        host = with_ssh_config({"w": server.host()}, config)["w"]
        told = shlex.split(SshOptions(ssh_config="none").arguments(host))
        command = [
            "ssh",
            *told,
            *("-o", "BatchMode=yes", "-p", str(host.port), f"{host.user}@{host.address}"),
            "echo hello",
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "hello\n"), ended.stderr
    assert {"IdentitiesOnly=yes", f'IdentityAgent="{folder}/agent"'} <= set(told)
    alone = replace(host, identities=replace(host.identities, agent="", only=False))
    assert "IdentityAgent=none" in shlex.split(SshOptions().arguments(alone))


def test_certificate_that_has_expired(certified: Sshd, authority: Path, key: Path) -> None:
    certify(authority, key, "-n", certified.user, "-V", "20200101:20200102")
    shell = ParamikoShell(known_hosts=certified.known_hosts(), key_file=key)
    with pytest.raises(
        SshAuthError, match=r"certificate 'a certificate' of SHA256:\S+, which has expired"
    ):
        shell.run(certified.host(), "true", timeout=30)


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("KexAlgorithms sntrup761x25519-sha512@openssh.com", "key exchange"),
        ("Ciphers chacha20-poly1305@openssh.com", "cipher"),
    ],
)
def test_a_server_that_is_newer_is_left_to_openssh(
    tmp_path: Path, key: Path, option: str, kind: str
) -> None:
    with trusting(tmp_path, key, option) as server:
        shell = ParamikoShell(known_hosts=server.known_hosts(), key_file=key)
        with pytest.raises(SshUnreachableError, match=f"no {kind} in common") as caught:
            shell.run(server.host(), "true", timeout=30)
    assert option.split()[1] in caught.value.message
    assert "does not support" in caught.value.hint
    assert "--executor ansible" in caught.value.hint


@pytest.mark.parametrize(
    ("names", "is_outdated"),
    [
        (("diffie-hellman-group1-sha1", "diffie-hellman-group14-sha1"), True),
        (("ssh-rsa", "ssh-dss"), True),
        (("aes128-cbc", "3des-cbc", "arcfour256"), True),
        (("hmac-sha1", "hmac-md5"), True),
        (("mlkem768x25519-sha256",), False),
        (("aes128-cbc", "chacha20-poly1305@openssh.com"), False),
        (("hmac-sha2-512-etm@openssh.com",), False),
    ],
)
def test_a_server_is_too_old_if_all_that_it_offers_is(
    names: tuple[str, ...], *, is_outdated: bool
) -> None:
    assert Offer("cipher", names).is_outdated is is_outdated
