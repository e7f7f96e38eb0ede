"""Reads, signs and verifies evidence with ssh-keygen.

The signature of DOCUMENT.json is in DOCUMENT.json.sig.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange
from rollout.adapters.input_files import Trust, check_input, read_input
from rollout.adapters.input_trust import hint_of
from rollout.adapters.local_files import needing_temporary_folder
from rollout.adapters.programs import run_program
from rollout.adapters.secrets import child_environment
from rollout.errors import ApiError, ApiUnavailableError, InputError
from rollout.gather.cluster.documents import Document
from rollout.model.marks import EVIDENCE_NAME
from rollout.model.tool_output import last_line
from rollout.ports import ClusterApi

CONFIGMAP = "configmap"
_SIGNATURE_SUFFIX = ".sig"
_DOCUMENT_SUFFIX = ".json"
_LARGEST_DOCUMENT = 1 << 20
_MOST_DOCUMENTS = 100
_BOUNDS = Bounds(seconds=20.0, largest=_LARGEST_DOCUMENT)
_PROGRAM_SECONDS = 20.0
# Excludes signatures for other purposes.
SIGNATURE_NAMESPACE = "evidence@node-rollout.dev"
_SSH_KEYGEN = ("ssh-keygen", "-n", SIGNATURE_NAMESPACE, "-Y")
_SIGN_KEY_HINT = "--sign-key takes an SSH key."
_NOT_THERE = "it does not exist"
_TOO_MANY = f"it has more than {_MOST_DOCUMENTS} documents"


class SignedDocument(Struct, frozen=True):
    """An unverified document, or why it cannot be read."""

    # For messages.
    origin: str
    content: bytes = b""
    signature: bytes = b""
    problem: str = ""


def read_documents(source: str, api: ClusterApi, namespace: str) -> tuple[SignedDocument, ...]:
    """Return documents of a file, folder, URL or the ConfigMap.

    Raises only `ApiUnavailableError`; documents have a `problem`.
    """
    if source == CONFIGMAP:
        return tuple(_read_configmap(api, namespace))
    if source.startswith(("http://", "https://")):
        return (_read_url(source),)
    path = Path(source)
    if path.is_dir():
        paths = sorted(path.glob(f"*{_DOCUMENT_SUFFIX}"))[: _MOST_DOCUMENTS + 1]
        if len(paths) > _MOST_DOCUMENTS:
            return (SignedDocument(source, problem=_TOO_MANY),)
        if not paths:
            return (SignedDocument(source, problem=f"it has no {_DOCUMENT_SUFFIX} files"),)
        return tuple(map(_read_file, paths))
    return (_read_file(path),)


def _read_file(path: Path) -> SignedDocument:
    try:
        content = read_input(path, most=_LARGEST_DOCUMENT)
        signature_path = path.with_name(path.name + _SIGNATURE_SUFFIX)
        signature = read_input(signature_path, most=_LARGEST_DOCUMENT)
    except OSError as error:
        origin = str(error.filename or path)
        return SignedDocument(origin, problem=error.strerror or "it cannot be read")
    return SignedDocument(str(path), content, signature)


def _read_url(url: str) -> SignedDocument:
    bodies: list[bytes] = []
    for file_url in (url, f"{url}{_SIGNATURE_SUFFIX}"):
        try:
            bodies.append(exchange(file_url, _BOUNDS, by_proxy=True))
        except ExchangeError as error:
            return SignedDocument(file_url, problem=str(error))
    content, signature = bodies
    return SignedDocument(url, content, signature)


def _read_configmap(api: ClusterApi, namespace: str) -> Iterator[SignedDocument]:
    document = Document(namespace, EVIDENCE_NAME, key="")
    try:
        config_map = document.read(api).config_map or {}
        data = config_map.get("data") or {}
    except ApiUnavailableError:
        raise
    except ApiError as error:
        yield SignedDocument(document.origin, problem=error.message)
        return
    names = sorted(name for name in data if name.endswith(_DOCUMENT_SUFFIX))
    if len(names) > _MOST_DOCUMENTS:
        yield SignedDocument(document.origin, problem=_TOO_MANY)
        return
    if not names:
        yield SignedDocument(document.origin, problem=_NOT_THERE)
    for name in names:
        content = data[name]
        signature = data.get(name + _SIGNATURE_SUFFIX)
        origin = f"{document.origin}, {name}"
        if signature is None:
            yield SignedDocument(origin + _SIGNATURE_SUFFIX, problem=_NOT_THERE)
        else:
            yield SignedDocument(origin, content.encode(), signature.encode())


def why_not_signed(document: SignedDocument, signers: Path, principal: str) -> str:
    """Return why the signature is not the principal's, or empty.

    `signers` is an allowed_signers file.
    """
    try:
        allowed = read_input(signers, most=_LARGEST_DOCUMENT, trust=Trust.NOT_WRITABLE_BY_OTHERS)
    except OSError as error:
        return f"the allowed signers in {signers} cannot be read: {error.strerror}"
    try:
        verification = _run_verification(document, allowed, principal)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its signature cannot be verified: {error}"
    if verification.returncode == 0:
        return ""
    printed = (verification.stdout + verification.stderr).decode(errors="replace")
    return f"its signature is not by {principal}, as listed in {signers}: {last_line(printed)}"


def _run_verification(
    document: SignedDocument, allowed_signers: bytes, principal: str
) -> "subprocess.CompletedProcess[bytes]":
    with (
        needing_temporary_folder("a signature"),
        tempfile.TemporaryDirectory(prefix="rollout-") as folder,
    ):
        # The operator's file may change.
        signers_copy = Path(folder) / "signers"
        signers_copy.write_bytes(allowed_signers)
        signature = Path(folder) / "signature"
        signature.write_bytes(document.signature)
        files = ("-f", str(signers_copy), "-s", str(signature))
        words = (*_SSH_KEYGEN, "verify", *files, "-I", principal)
        return run_program(words, seconds=_PROGRAM_SECONDS, stdin=document.content)


def sign(content: bytes, key: Path) -> bytes:
    """Sign by an SSH key, or the agent; `InputError` on failure.

    ssh-keygen may ask for a passphrase.
    """
    try:
        check_input(key, trust=Trust.NOT_WRITABLE_BY_OTHERS)
    except OSError as error:
        message = f"cannot sign with {key}: {error.strerror}"
        raise InputError(message, hint=hint_of(error, _SIGN_KEY_HINT)) from error
    try:
        words = [*_SSH_KEYGEN, "sign", "-f", str(key)]
        completed = subprocess.run(  # noqa: S603
            words, input=content, capture_output=True, env=child_environment(), check=False
        )
    except OSError as error:
        message = f"ssh-keygen cannot be run: {error.strerror}"
        raise InputError(message, hint="It is part of OpenSSH.") from error
    if completed.returncode or not completed.stdout:
        reason = last_line(completed.stderr.decode(errors="replace"))
        raise InputError(f"the evidence cannot be signed with {key}: {reason}", hint=_SIGN_KEY_HINT)
    return completed.stdout
