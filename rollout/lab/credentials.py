import base64
import datetime as dt
import ipaddress
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import asyncssh
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct

CONTEXT: Final = "rollout-lab"
_LIFETIME: Final = dt.timedelta(days=30)
_SKEW: Final = dt.timedelta(minutes=5)
_OWNER_ONLY: Final = 0o600
# libyaml, if PyYAML has it, takes a tenth of the time.
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Authority(Struct, frozen=True):
    """A self-signed certificate and its key, both PEM."""

    certificate: bytes
    server_key: bytes


class InventoryHost(Struct, frozen=True):
    """`public_key` is in OpenSSH form; a fault makes it differ from the host's."""

    name: str
    role: str
    address: str
    port: int
    public_key: str


def new_client_key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519", comment="rollout lab")


def new_authority(now: dt.datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rollout lab")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Authority(certificate.public_bytes(serialization.Encoding.PEM), private)


def server_context(authority: Authority, directory: Path) -> ssl.SSLContext:
    """`ssl` reads certificates only from a file."""
    path = directory / ".server.pem"
    _write_private(path, (authority.certificate + authority.server_key).decode())
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(path)
    finally:
        path.unlink()
    return context


def write_kubeconfig(path: Path, *, server: str, authority: Authority, token: str) -> None:
    authority_data = base64.b64encode(authority.certificate).decode()
    cluster = {"server": server, "certificate-authority-data": authority_data}
    context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": context}],
    }
    _write_private(path, yaml.dump(document, Dumper=_DUMPER, sort_keys=False))


def write_client_key(path: Path, key: asyncssh.SSHKey) -> None:
    _write_private(path, key.export_private_key().decode())
    path.with_name(f"{path.name}.pub").write_text(key.export_public_key().decode())


def write_known_hosts(path: Path, hosts: Sequence[InventoryHost]) -> None:
    lines = [f"[{host.address}]:{host.port} {host.public_key}\n" for host in hosts]
    path.write_text("".join(lines))


def write_inventory(path: Path, hosts: Sequence[InventoryHost], *, user: str, key: Path) -> None:
    groups: dict[str, Any] = {}
    for host in hosts:
        group = groups.setdefault(host.role.replace("-", "_"), {"hosts": {}})
        group["hosts"][host.name] = {"ansible_host": host.address, "ansible_port": host.port}
    variables = {"ansible_user": user, "ansible_ssh_private_key_file": str(key)}
    document = {"all": {"vars": variables, "children": groups}}
    path.write_text(yaml.dump(document, Dumper=_DUMPER, sort_keys=False))


def public_line(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key().decode().split()[:2])


def _write_private(path: Path, text: str) -> None:
    """Only the owner can read the file, from its creation on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
