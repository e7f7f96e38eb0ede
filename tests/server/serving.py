"""What tests of other folders and clients need of the FleetLock server on a lab: see `conftest` for the others."""

import datetime as dt
import ipaddress
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rollout.lab.api.resources import PODS
from rollout.lab.lab import Lab
from rollout.lab.objects import is_daemon, is_mirror, node_name
from tests.ended import start
from tests.server.conftest import Serving


@contextmanager
def serving(lab: Lab, home: Path, *arguments: str, context: ssl.SSLContext | None = None) -> Iterator[Serving]:
    """A replica that is ready; killed in the end. `context` is for one that serves HTTPS."""
    words = ("fleetlock", "--listen", "127.0.0.1:0", *arguments)
    server = Serving(start(home, lab.environment, words), context=context)
    try:
        yield server
    finally:
        server.end(signal.SIGKILL)


def left_on(lab: Lab, node: str) -> list[str]:
    """The pods that a drain would have to move."""
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in lab.call(lambda: list(lab.store.items(PODS)))
        if node_name(pod) == node
        and not (is_daemon(pod) or is_mirror(pod))
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def new_certificate(directory: Path, subject: str = "fleetlock") -> tuple[Path, Path]:
    """A certificate for this machine's loopback address, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = directory / "tls.crt", directory / "tls.key"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return cert_file, key_file
