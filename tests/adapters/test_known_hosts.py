"""Host keys on file, against OpenSSH's own tool and asyncssh's reader."""

import base64
import shutil
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

import asyncssh
import pytest

from rollout.adapters.ssh.known_hosts import HostKey, KnownHosts
from rollout.errors import HostKeyError
from rollout.lab.credentials import public_line
from rollout.model.host import Host, HostKeyChecking, HostKeyFiles

KEYS = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(4)]
RSA = asyncssh.generate_private_key("ssh-rsa", key_size=2048)


def host_key(key: asyncssh.SSHKey) -> HostKey:
    return HostKey(public_line(key).split()[0], key.public_data)


def known(
    folder: Path, text: str, checking: HostKeyChecking = HostKeyChecking.STRICT
) -> KnownHosts:
    (folder / "known_hosts").write_text(text, newline="")
    return KnownHosts(HostKeyFiles((str(folder / "known_hosts"),)), checking)


def keys(found: Iterable[HostKey]) -> set[bytes]:
    return {key.blob for key in found}


FILE = f"""
# a comment
plain.example,192.0.2.1 {public_line(KEYS[0])} somebody@somewhere
192.0.2.1 {public_line(RSA)}
[192.0.2.1]:2222 {public_line(KEYS[1])}
2001:db8::1 {public_line(KEYS[0])}
[2001:db8::1]:2222 {public_line(KEYS[2])}
*.pool.example,!bad.pool.example {public_line(KEYS[3])}
[node-?.example]:2222 {public_line(KEYS[3])}
damaged.example ssh-ed25519 AAAA!!!!
short.example ssh-ed25519
@cert-authority *.example {public_line(KEYS[2])}
UPPER.example {public_line(KEYS[2])}
|1|damaged|line {public_line(KEYS[2])}
|1|x {public_line(KEYS[2])}
"""


# What OpenSSH itself would hash.
WELL_FORMED = "".join(
    f"{row}\n" for row in FILE.splitlines() if not row.startswith(("damaged", "short", "|1|"))
)


ADDRESSES = [
    "192.0.2.1",
    "2001:db8::1",
    "a.pool.example",
    "bad.pool.example",
    "node-1.example",
    "unknown.example",
]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("port", [22, 2222])
@pytest.mark.parametrize("hashed", [False, True])
def test_agrees_with_openssh(tmp_path: Path, address: str, port: int, *, hashed: bool) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(FILE)
    if hashed:
        file.write_text(WELL_FORMED)
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    found = known(tmp_path, file.read_text()).keys(Host("h", address, port))
    name = address if port == 22 else f"[{address}]:{port}"
    command = ["ssh-keygen", "-F", name, "-f", str(tmp_path / "known_hosts")]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    rows = [row.split() for row in printed if not row.startswith(("#", "@"))]
    assert keys(found) == {base64.b64decode(row[2]) for row in rows}


@pytest.mark.parametrize("checking", [HostKeyChecking.STRICT, HostKeyChecking.ACCEPT_NEW])
@pytest.mark.parametrize(
    "revoked", ["@revoked *", "\t@revoked\t#lost", "@revoked\r#", "@revoked \f192.0.2.1"]
)
def test_revoked_key_is_refused_even_where_it_is_listed(
    tmp_path: Path, checking: HostKeyChecking, revoked: str
) -> None:
    file = known(
        tmp_path, f"192.0.2.1 {public_line(KEYS[0])}\n{revoked} {public_line(KEYS[0])}\n", checking
    )
    with pytest.raises(HostKeyError, match="is revoked"):
        file.verify(Host("h", "192.0.2.1"), host_key(KEYS[0]))


@pytest.mark.parametrize("checking", list(HostKeyChecking))
def test_a_port_that_has_shown_the_addresss_key_shows_no_other(
    tmp_path: Path, checking: HostKeyChecking
) -> None:
    file = known(tmp_path, f"192.0.2.1 {public_line(KEYS[0])}\n", checking)
    file.verify(Host("h", "192.0.2.1"), host_key(KEYS[0]))
    other_port = Host("h", "192.0.2.1", 2222)
    file.verify(other_port, host_key(KEYS[0]))
    with pytest.raises(HostKeyError, match="has changed"):
        file.verify(other_port, host_key(KEYS[1]))
    assert len((tmp_path / "known_hosts").read_text().splitlines()) == 1


def test_a_damaged_type_can_be_told_in_json(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_bytes(b"192.0.2.1 ssh\xff" + public_line(KEYS[0]).encode() + b"\n")
    read = KnownHosts(HostKeyFiles((str(file),)), HostKeyChecking.STRICT)
    with pytest.raises(HostKeyError, match=r"but known_hosts has ssh\?") as caught:
        read.verify(Host("n1", "192.0.2.1"), host_key(KEYS[1]))
    assert caught.value.message.encode()


def test_new_keys_are_appended_whole(tmp_path: Path) -> None:
    file = known(tmp_path, f"other.example {public_line(KEYS[0])}", HostKeyChecking.ACCEPT_NEW)
    hosts = [Host(f"h{number}", f"192.0.2.{number}", 2222) for number in range(40)]
    threads = [
        threading.Thread(target=file.verify, args=(host, host_key(KEYS[1]))) for host in hosts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = KnownHosts(HostKeyFiles((str(tmp_path / "known_hosts"),)), HostKeyChecking.STRICT)
    assert all(keys(read.keys(host)) == {KEYS[1].public_data} for host in hosts)
    assert keys(read.keys(Host("other", "other.example"))) == {KEYS[0].public_data}
    assert len((tmp_path / "known_hosts").read_text().splitlines()) == 41


def test_file_that_cannot_be_written(tmp_path: Path) -> None:
    file = KnownHosts(
        HostKeyFiles((str(tmp_path / "file" / "known_hosts"),)), HostKeyChecking.ACCEPT_NEW
    )
    (tmp_path / "file").touch()
    with pytest.raises(HostKeyError, match="cannot be written"):
        file.verify(Host("h", "192.0.2.1"), host_key(KEYS[0]))


@pytest.mark.parametrize(
    ("on_file", "port"), [("2001:DB8:0::1", 22), ("[2001:db8:0:0::1]:2222", 2222)]
)
def test_a_key_is_found_by_any_spelling_of_its_address(
    tmp_path: Path, on_file: str, port: int
) -> None:
    file = known(tmp_path, f"{on_file} {public_line(KEYS[0])}\n")
    assert keys(file.keys(Host("h", "2001:db8::1", port))) == {KEYS[0].public_data}
