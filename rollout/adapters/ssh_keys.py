"""The operator's private keys: read and decrypted once, every way in which that fails told plainly.

Where no key file is given, the agent's keys and OpenSSH's default files are tried, as `ssh` does.
"""

import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import PasswordRequiredException

from rollout.errors import SshAuthError

PASSPHRASE_VARIABLE = "ROLLOUT_SSH_KEY_PASSPHRASE"  # noqa: S105 - the name of the variable

_DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_OPEN_TO_OTHERS = 0o077
# sshd ends the connection at the sixth refusal.
_MOST_TRIED = 5


class KeyRing:
    """Private keys by file. Safe to use from many threads; each file is read once, also where that failed."""

    def __init__(self, passphrase: str | None) -> None:
        self._passphrase = passphrase
        self._lock = threading.Lock()
        self._loaded: dict[str, paramiko.PKey | SshAuthError] = {}

    def load(self, file: str) -> paramiko.PKey:
        """The key in a file; `SshAuthError` says why it cannot be used."""
        with self._lock:
            if file not in self._loaded:
                self._loaded[file] = self._read(Path(file).expanduser())
            key = self._loaded[file]
        if isinstance(key, SshAuthError):
            # A fresh one a caller: raising adds the traceback of each thread to the object.
            raise SshAuthError(key.message, hint=key.hint) from key
        return key

    @contextmanager
    def candidates(self, file: str | None) -> Iterator[tuple[paramiko.PKey, ...]]:
        """Keys to try in order: the file's alone, else the agent's and the default files'."""
        if file is not None:
            yield (self.load(file),)
            return
        # An agent answers one request at a time, so each connection has its own line to it.
        with ExitStack() as opened:
            yield tuple(islice((*_agent_keys(opened), *self._defaults()), _MOST_TRIED))

    def _defaults(self) -> Iterator[paramiko.PKey]:
        for file in _DEFAULT_FILES:
            if Path(file).expanduser().is_file():
                with suppress(SshAuthError):
                    yield self.load(file)

    def _read(self, file: Path) -> paramiko.PKey | SshAuthError:
        try:
            if _too_open(file):
                return SshAuthError(
                    f"key file {file}: others may read it", hint=f"Run: chmod 600 {file} (ssh refuses it as well)"
                )
            return self._parse(file)
        except OSError as error:
            return SshAuthError(f"key file {file}: {error.strerror}", hint="Name another with --ssh-key.")

    def _parse(self, file: Path) -> paramiko.PKey | SshAuthError:
        try:
            return _load(file, None)
        except (TypeError, PasswordRequiredException):
            return self._decrypt(file)
        except (ValueError, paramiko.SSHException, UnknownKeyType):
            return SshAuthError(f"key file {file}: {_what_it_is(file)}", hint="Name a private key with --ssh-key.")

    def _decrypt(self, file: Path) -> paramiko.PKey | SshAuthError:
        if not self._passphrase:
            return SshAuthError(
                f"key file {file}: it is encrypted", hint=f"Set {PASSPHRASE_VARIABLE}, or use ssh-agent."
            )
        try:
            return _load(file, self._passphrase.encode())
        except (TypeError, ValueError, paramiko.SSHException):
            return SshAuthError(
                f"key file {file}: the passphrase does not open it", hint=f"It comes from {PASSPHRASE_VARIABLE}."
            )


def _load(file: Path, passphrase: bytes | None) -> paramiko.PKey:
    """The key; paramiko misreads OpenSSH's format where a comment is empty and nothing pads it, so not it alone."""
    try:
        # Bytes, whatever the annotation says: the library underneath takes nothing else.
        return paramiko.PKey.from_path(file, passphrase)  # type: ignore[arg-type]
    except PasswordRequiredException:
        raise
    except paramiko.SSHException:
        key = serialization.load_ssh_private_key(file.read_bytes(), passphrase)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return paramiko.ECDSAKey(vals=(key, key.public_key()))
        if isinstance(key, rsa.RSAPrivateKey):
            return paramiko.RSAKey(key=key)
        raise


def _agent_keys(opened: ExitStack) -> tuple[paramiko.PKey, ...]:
    """The running agent's keys; none where there is no agent or it makes no sense."""
    if not _agent_listens(os.environ.get("SSH_AUTH_SOCK", "")):
        return ()
    try:
        agent = paramiko.Agent()
        opened.callback(agent.close)
        return agent.get_keys()
    except (paramiko.SSHException, OSError):
        return ()


def _agent_listens(path: str) -> bool:
    """Whether somebody listens there: paramiko finds out as well, but then forgets to close its socket."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.connect(path)
    except OSError:
        return False
    return True


def _too_open(file: Path) -> bool:
    """Whether OpenSSH would refuse it: ours, and not for us alone."""
    status = file.stat()
    ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
    return ours and bool(stat.S_IMODE(status.st_mode) & _OPEN_TO_OTHERS)


def _what_it_is(file: Path) -> str:
    start = file.read_bytes()[:64]
    if start.startswith((b"ssh-", b"ecdsa-", b"sk-")):
        return "it is a public key"
    if start.startswith(b"PuTTY-User-Key-File"):
        return "it is a PuTTY key; convert it with puttygen -O private-openssh"
    return "it is no private key that can be used (ed25519, ecdsa and rsa can)"
