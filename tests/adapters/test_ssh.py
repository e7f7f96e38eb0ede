"""The shell over real connections to another library's SSH servers."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import asyncssh
import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from rollout.adapters.ssh.keys import KeyRing
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import InputError, SshAuthError, SshError
from rollout.model.host import Identities
from tests.adapters.conftest import Process, shell
from tests.adapters.openssh import MISSING, add_to_agent, is_here, new_key, ssh_agent

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")


def test_both_streams_are_read_to_their_ends(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path
) -> None:
    async def chatter(process: Process) -> None:
        for _ in range(6):
            process.stderr.write(b"e" * 65536)
            process.stdout.write(b"o" * 65536)
            await process.stderr.drain()
        process.exit(0)

    server = servers.serve(chatter, authorized=[client_key])
    result = shell(server, key_file).run(server.host(), "x", timeout=60)
    assert len(result.stdout) == 6 * 65536
    assert len(result.stderr) == 6 * 65536
    assert result.exit_status == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_is_cut_off(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path, stream: str
) -> None:
    async def flood(process: Process) -> None:
        while True:
            getattr(process, stream).write(b"x" * 65536)
            await getattr(process, stream).drain()

    server = servers.serve(flood, authorized=[client_key])
    with pytest.raises(SshError, match=r"printed more than 1048576 bytes"):
        shell(server, key_file).run(server.host(), "yes", timeout=60)


def test_connection_that_drops_has_no_exit_status(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path
) -> None:
    async def reboot(process: Process) -> None:
        process.stdout.write(b"going down")
        await process.stdout.drain()
        await asyncio.sleep(0.1)
        process.channel.get_connection().abort()

    server = servers.serve(reboot, authorized=[client_key])
    result = shell(server, key_file).run(server.host(), "reboot", timeout=60)
    assert result.exit_status is None
    assert result.stdout == "going down"


def test_default_keys_are_tried_in_turn(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.serve(authorized=[client_key])
    known = server.known_hosts(key_file.parent)
    folder = key_file.parent / "home" / ".ssh"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(SshAuthError, match="there is no key to log in with"):
        ParamikoShell(known_hosts=known).run(server.host(), "x", timeout=60)
    write_key(asyncssh.generate_private_key("ssh-ed25519"), folder / "id_ed25519")
    client_key.write_private_key(folder / "id_ecdsa")
    (folder / "id_ecdsa").chmod(0o600)
    assert ParamikoShell(known_hosts=known).run(server.host(), "x", timeout=60).exit_status == 3


def test_agent_that_hangs(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.adapters.ssh.keys._AGENT_SECONDS", 0.3)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "agent"))
        listening.listen()
        with pytest.raises(SshAuthError, match="there is no key to log in with"):
            ParamikoShell(known_hosts=server.known_hosts(tmp_path)).run(
                server.host(), "x", timeout=60
            )


def write_key(key: asyncssh.SSHKey, path: Path, passphrase: str | None = None) -> Path:
    key.write_private_key(path, passphrase=passphrase, rounds=1, ignore_few_rounds=True)
    path.chmod(0o600)
    return path


def break_key(kind: str, path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    match kind:
        case "directory":
            path.mkdir()
        case "encrypted":
            write_key(key, path, "secret")
        case "open":
            write_key(key, path).chmod(0o644)
        case "public":
            key.write_public_key(path)
            path.chmod(0o600)
        case "junk":
            path.write_bytes(b"\x00junk\xff")
            path.chmod(0o600)
        case "putty":
            path.write_text("PuTTY-User-Key-File-3: ssh-ed25519\n")
            path.chmod(0o600)
        case _:
            assert kind == "missing"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "No such file or directory"),
        ("directory", "Is a directory"),
        ("encrypted", "it is encrypted"),
        ("open", "others can read it"),
        ("public", "it is a public key"),
        ("junk", "it is not a private key"),
        ("putty", "it is a PuTTY key"),
    ],
)
def test_unusable_key(server: Any, tmp_path: Path, kind: str, message: str) -> None:
    path = tmp_path / "id_broken"
    break_key(kind, path)
    with pytest.raises(InputError, match=f"key file {path}: {message}") as caught:
        ParamikoShell(key_file=path)
    assert caught.value.hint
    known = server.known_hosts(tmp_path)
    with pytest.raises(SshAuthError, match=f"^key file {path}: {message}"):
        ParamikoShell(known_hosts=known).run(server.host(key_file=str(path)), "x", timeout=60)
    assert not server.connections


FORMATS = ("openssh", "pkcs8-pem", "pkcs1-pem")


@pytest.mark.parametrize("passphrase", [None, "secret"])
@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
    "algorithm", ["ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp521", "ssh-ed25519"]
)
def test_a_key_in_every_format_of_openssh_logs_in(
    tmp_path: Path, algorithm: str, file_format: str, passphrase: str | None
) -> None:
    if algorithm == "ssh-ed25519" and file_format == "pkcs1-pem":
        pytest.skip("there is no such format for these keys")
    key = asyncssh.generate_private_key(algorithm)
    few_rounds = {"rounds": 1, "ignore_few_rounds": True} if file_format == "openssh" else {}
    path = tmp_path / "id"
    key.write_private_key(path, file_format, passphrase=passphrase, **few_rounds)
    path.chmod(0o600)
    loaded = KeyRing(passphrase or "").load(str(path))
    assert loaded.asbytes() == key.public_data
    # it signs with the private half that belongs to it
    signed = loaded.sign_ssh_data(b"data", "rsa-sha2-256" if algorithm == "ssh-rsa" else None)
    public = type(loaded)(data=key.public_data)  # type: ignore[arg-type]
    assert public.verify_ssh_sig(b"data", paramiko.Message(signed.asbytes()))


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (
            "-----BEGIN PRIVATE KEY-----\nbm90aGluZw==\n-----END PRIVATE KEY-----\n",
            "rollout cannot use this private key",
            "ssh-keygen -p -Z aes256-ctr -f ",
        ),
        ("PuTTY-User-Key-File-2: ssh-rsa\n", "a PuTTY key", "puttygen "),
        ("ssh-ed25519 AAAA ann@laptop\n", "a public key", "--ssh-key"),
        ("hello\n", "not a private key", "--ssh-key"),
    ],
)
def test_a_file_that_is_no_usable_key_says_what_helps(
    tmp_path: Path, content: str, what: str, hint: str
) -> None:
    path = tmp_path / "my id"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(SshAuthError, match=what) as caught:
        KeyRing().load(str(path))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("mode", "command"), [(0o644, "chmod 600 '{}' (ssh "), (0o600, "ssh-add '{}' (with ")]
)
def test_commands_in_hints_quote_the_name_of_the_key_file(
    tmp_path: Path, mode: int, command: str
) -> None:
    path = write_key(asyncssh.generate_private_key("ssh-ed25519"), tmp_path / "my id", "secret")
    path.chmod(mode)
    with pytest.raises(SshAuthError) as caught:
        KeyRing().load(str(path))
    assert command.format(path) in caught.value.hint


RSA_OF_512_BITS = """\
-----BEGIN RSA PRIVATE KEY-----
MIIBPAIBAAJBAOHk6nEj3lOmPB2YCG3wigWiNV7sN3fsaoNrdvwRQFZi6D9osE2X
RXnVSFtft81/ULKogBrdMV5x74bwL/tzQFECAwEAAQJBAKEg4yV+20g5jCnj1yds
a1cnZABoaAxvo25Iil+0gnrazPDTR8/5znmwzNvR8U2deEZ4Kkde/RVM1v50s3NX
8/0CIQD3aBp9x2NasKbIMQsJWBqWRiEG01isnUUB69WDo2gYiwIhAOm9hwE/SA/a
JUrAcUAm8mfliUsSr7q+ZNsZkdwRzAoTAiEAgzisFFpU0B0x2KxqdiJMt7eqfLxM
JAGmQEadkJxy8dECIQCsNsXnd1aCx3k+cDeAyrFDN21GcMgk0O7CNz6uZDZvHQIg
OxBfFKsJqyFjHzlH48X8S+0HTjV1y0OI/eEh7vu1R+Y=
-----END RSA PRIVATE KEY-----
"""
SECP256K1 = (
    ec.generate_private_key(ec.SECP256K1())
    .private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    .decode()
)


@pytest.mark.parametrize("text", [SECP256K1, RSA_OF_512_BITS], ids=["secp256k1", "rsa-512"])
def test_a_key_that_ssh_has_no_signatures_of_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "id"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SshAuthError, match="rollout cannot use this private key"):
        KeyRing().load(str(path))


@pytest.mark.skipif(not is_here(), reason=MISSING)
@pytest.mark.parametrize("suffix", [".pub", "-cert.pub"])
def test_a_named_pipe_beside_a_key_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """The agent has a key, so rollout looks for the public halves of the files."""
    key = write_key(asyncssh.generate_private_key("ssh-ed25519"), tmp_path / "id")
    agent = new_key(tmp_path / "other")
    os.mkfifo(tmp_path / f"id{suffix}")
    with ssh_agent(tmp_path / "agent"):
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        add_to_agent(agent)
        with KeyRing().open_keys(None, Identities((str(key),))) as keys:
            assert keys[0].asbytes() == KeyRing().load(str(key)).asbytes()


def test_passphrase_missing_or_wrong(tmp_path: Path) -> None:
    file = write_key(asyncssh.generate_private_key("ssh-ed25519"), tmp_path / "id", "secret")
    for passphrase, message in (
        (None, "it is encrypted"),
        ("guess", "the passphrase is wrong"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            ParamikoShell(key_file=file, passphrase=passphrase or "")
        assert "ROLLOUT_SSH_KEY_PASSPHRASE" in caught.value.hint
