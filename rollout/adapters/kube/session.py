"""Credentials and connections out of a kubeconfig, by way of the `kubernetes` package.

Its loader knows every way of logging in that kubectl knows, tokens that are renewed and programs
that are run included. It says what went wrong with a program only to the log, so the log is
listened to while it works. It is slow to import, hence in parts, and only when a cluster is really
asked for.

Certificates and keys that stand in a kubeconfig it writes into temporary files, which it removes as
the process ends: a killed one would leave them for ever. Here they are read into memory, and the
files removed, before anything is sent. Files that the kubeconfig names are read for each
connection, as they may be replaced meanwhile.
"""

import logging
import os
import socket
import ssl
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import urllib3
import urllib3.exceptions
from urllib3 import HTTPHeaderDict
from urllib3.connection import HTTPConnection
from urllib3.util.ssl_ import create_urllib3_context

from rollout.adapters.kube.client_parts import client_parts
from rollout.adapters.kube.kubeconfig import Login, find_login, in_cluster
from rollout.adapters.local_files import scratch_for
from rollout.adapters.secrets import header_value, masked, without_userinfo
from rollout.errors import ApiError, ApiUnavailableError, InputError, KubeconfigError
from rollout.model.tool_output import last_words

_UNAUTHORIZED = 401
_MOST_HEARD = 100
# So many are kept for reuse; more are made where more threads ask at once.
_CONNECTIONS = 64
_LOGIN_PAUSE = 5.0
_STARTING_SECONDS = 60.0
# Credentials are renewed this long before they expire, or in the last fifth of a short lifetime.
_MOST_MARGIN = timedelta(minutes=1)
_SHARE_OF_LIFETIME = 0.2
_REFUSALS = (_UNAUTHORIZED, 403)
_CREDENTIALS_HINT = "Check the token, or the file or program that it comes from."
_SOCKS = "socks"
_OF_ENVIRONMENT = "the proxy of the environment"
_PROXY_HINT = "Check HTTPS_PROXY and NO_PROXY: a proxy is http://HOST:PORT."
_LOOPBACK = "localhost,127.0.0.0/8,::1"


@dataclass(frozen=True, slots=True)
class Session:
    """A connection to an API server, with its credentials and the impersonated user.

    `context` is the kubeconfig's, empty in a pod without one. `impersonation` are headers; a name
    may stand there several times.
    """

    server: str
    pool: urllib3.PoolManager
    configuration: Any
    context: str = ""
    impersonation: tuple[tuple[str, str], ...] = ()
    renewing: threading.Lock = field(default_factory=threading.Lock)

    def with_credentials(self, headers: Mapping[str, str]) -> HTTPHeaderDict:
        """Add the credentials to these headers, and renew them first if they are about to expire.

        `ApiUnavailableError` where they cannot be sent: a file or program that gives others later
        is waited for.
        """
        with self.renewing, _no_file_left(), _listening():
            settings = self.configuration.auth_settings()
        complete = HTTPHeaderDict(headers)
        try:
            for item in settings.values():
                if item["value"]:
                    complete[item["key"]] = header_value(item["value"])
        except ValueError as error:
            message = f"the kubeconfig's credentials cannot be sent: they have {error}"
            raise ApiUnavailableError(
                message, status=_UNAUTHORIZED, hint=_CREDENTIALS_HINT
            ) from None
        for name, value in self.impersonation:
            complete.add(name, value)
        return complete

    def without_credentials(self, body: bytes) -> bytes:
        """Return what a server has answered, should it have sent back what it was sent."""
        sent = [value.split()[-1] for value in self.configuration.api_key.values() if value.split()]
        return masked(body.decode(errors="surrogateescape"), sent).encode(errors="surrogateescape")


def open_session(kubeconfig: Path | None, context: str | None) -> Session:
    """Find the kubeconfig, log in, and prepare connections; nothing is sent to the API server yet."""
    if kubeconfig is None and in_cluster():
        return _session(_service_account(context), proxy="")
    login = find_login(kubeconfig, context)
    with _no_file_left():
        session = _session(_configuration(login), proxy=login.proxy)
    return replace(session, context=login.context, impersonation=_impersonation(login))


def _impersonation(login: Login) -> tuple[tuple[str, str], ...]:
    """Return the headers that ask for another identity; `KubeconfigError` where one cannot be sent."""
    try:
        return tuple((name, header_value(value)) for name, value in login.impersonation)
    except ValueError as error:
        message = (
            f"user {login.user!r} of {login.origin} impersonates someone whose name has {error}"
        )
        raise KubeconfigError(
            message, hint="Write names with ASCII characters, on one line."
        ) from None


@contextmanager
def _no_file_left() -> Iterator[None]:
    """Remove the files that the package has put a kubeconfig's certificates and keys into, whatever happens."""
    try:
        yield
    finally:
        client_parts().kube_config._cleanup_temp_files()  # noqa: SLF001 - else it does so at the end alone


def _service_account(context: str | None) -> Any:
    if context:
        raise KubeconfigError(
            f"there is no context {context!r}: the pod's service account is used",
            hint="Drop --context, or name a --kubeconfig.",
        )
    parts = client_parts()
    configuration = parts.configuration.Configuration()
    with _translated("the pod's service account"):
        parts.incluster_config.load_incluster_config(configuration)
    return configuration


def _configuration(login: Login) -> Any:
    parts = client_parts()
    if login.program and login.program.interactive_mode == "Never":
        parts.programs.ask_nothing()
    configuration = parts.configuration.Configuration()
    with (
        _translated(login.origin),
        scratch_for("a kubeconfig with certificates in it"),
        _listening() as heard,
    ):
        loader = parts.kube_config._get_kube_config_loader(  # noqa: SLF001 - only it knows when credentials expire
            filename=os.pathsep.join(str(path) for path in login.files),
            active_context=login.context,
        )
        loader.load_and_set(configuration)
        Renewal(loader).watch_over(configuration)
    if login.program and not (configuration.api_key or configuration.cert_file):
        why = f": {last_words(heard[-1].getMessage())}" if heard else ""
        raise KubeconfigError(
            f"{login.program.command} gave no credentials{why}",
            hint=login.program.install_hint
            or f"Run it by hand, or see user {login.user!r} in {login.origin}.",
        )
    return configuration


class Renewal:
    """Renews credentials that say when they expire, shortly before they do.

    The library renews them five minutes before that. Those that live for less than five minutes it
    would renew for every request, running their program each time.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._due: datetime | None = None

    def watch_over(self, configuration: Any) -> None:
        """Renew these credentials when they are due. Credentials without an expiry are renewed after a 401."""
        self._due = _renewal_time(getattr(self._loader, "expiry", None), datetime.now(UTC))
        configuration.refresh_api_key_hook = self._renew_if_due

    def _renew_if_due(self, configuration: Any) -> None:
        if self._due is not None and datetime.now(UTC) >= self._due:
            self._loader.load_and_set(configuration)
            self.watch_over(configuration)


def _renewal_time(expiry: datetime | None, fetched_at: datetime) -> datetime | None:
    """Return when to renew credentials; None if they have no expiry, or it has passed by this clock."""
    if expiry is None or expiry <= fetched_at:
        return None
    return expiry - min(_MOST_MARGIN, (expiry - fetched_at) * _SHARE_OF_LIFETIME)


def _session(configuration: Any, *, proxy: str) -> Session:
    in_memory = _tls_context(configuration)
    _check_credentials(configuration)
    _choose_proxy(configuration, proxy)
    configuration.connection_pool_maxsize = _CONNECTIONS
    configuration.socket_options = _kept_alive()
    # What is missing for SOCKS is told by an error of ours.
    warnings.simplefilter("ignore", urllib3.exceptions.DependencyWarning)
    is_of_environment = configuration.proxy and not proxy
    with _translated(_OF_ENVIRONMENT if is_of_environment else "the kubeconfig"):
        pool = client_parts().rest.RESTClientObject(configuration).pool_manager
    if in_memory is not None:
        pool.connection_pool_kw["ssl_context"] = in_memory
    if not configuration.verify_ssl:
        # The operator asked for it in the kubeconfig; a warning a request helps nobody.
        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
    return Session(configuration.host, pool, configuration)


def _kept_alive() -> list[tuple[int, int, int]]:
    """Socket options by which an idle watch is not forgotten by what stands in between, and its death is noticed."""
    wanted = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3}
    known = [name for name in wanted if hasattr(socket, name)]
    options = [(socket.IPPROTO_TCP, getattr(socket, name), wanted[name]) for name in known]
    return [
        *HTTPConnection.default_socket_options,
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *options,
    ]


def _tls_context(configuration: Any) -> ssl.SSLContext | None:
    """Return what connections are made with where certificates stand in the kubeconfig; None where files have them.

    An unusable certificate is met here, by its name, and not in the middle of a request.
    """
    context = create_urllib3_context(
        cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE
    )
    # An empty passphrase keeps OpenSSL from asking for one on the terminal.
    load_chain = partial(context.load_cert_chain, keyfile=configuration.key_file, password="")
    for kind, path, load in (
        ("certificate authority", configuration.ssl_ca_cert, context.load_verify_locations),
        ("client certificate or key", configuration.cert_file, load_chain),
    ):
        if not path:
            continue
        try:
            load(path)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise KubeconfigError(
                f"the {kind} of the kubeconfig cannot be used: {error}",
                hint="It must be PEM, and a key without a passphrase.",
            ) from error
    if not client_parts().kube_config._temp_files:  # noqa: SLF001 - the names of the files that it has written
        return None
    if configuration.verify_ssl and not configuration.ssl_ca_cert:
        context.load_default_certs()
    configuration.ssl_ca_cert = configuration.cert_file = configuration.key_file = None
    # One that is reached by TLS shows a certificate of the same authorities, as with kubectl.
    configuration.proxy_ssl_context = context
    return context


def _check_credentials(configuration: Any) -> None:
    try:
        for value in filter(None, configuration.api_key.values()):
            header_value(value)
    except ValueError as error:
        message = f"the credentials of the kubeconfig cannot be sent: they have {error}"
        raise KubeconfigError(message, hint=_CREDENTIALS_HINT) from None


def _choose_proxy(configuration: Any, proxy: str) -> None:
    """Go through the kubeconfig's proxy always; through the environment's, as Go does, to other machines only."""
    if proxy:
        configuration.proxy = proxy
    else:
        configuration.no_proxy = ",".join(
            part for part in (configuration.no_proxy, _LOOPBACK) if part
        )
        # Chosen by us, though it is the one from the environment: that would be looked through at
        # each request. It may be a host and a port alone: HTTP's, as for kubectl and curl.
        if configuration.proxy and "://" not in configuration.proxy:
            configuration.proxy = f"http://{configuration.proxy}"


@contextmanager
def _translated(origin: str) -> Iterator[None]:
    """Whatever the loader raises, for it raises anything, as one error that names the file."""
    try:
        yield
    except InputError:
        raise
    except ModuleNotFoundError as error:
        if error.name != _SOCKS:
            raise
        message = (
            f"{origin} cannot be used: a SOCKS proxy takes the package PySocks, which is not"
            " installed"
        )
        raise KubeconfigError(message, hint=f"{sys.executable} -m pip install PySocks") from error
    except Exception as error:
        raise KubeconfigError(
            f"{origin} cannot be used: {without_userinfo(str(error))}",
            hint=_PROXY_HINT if origin == _OF_ENVIRONMENT else "Check it with: kubectl config view",
        ) from error


@contextmanager
def _listening() -> Iterator[list[logging.LogRecord]]:
    """Collect what is logged as an error; with a handler of ours in place it is not printed either."""
    listener = BufferingHandler(_MOST_HEARD)
    listener.setLevel(logging.ERROR)
    logging.getLogger().addHandler(listener)
    try:
        yield listener.buffer
    finally:
        logging.getLogger().removeHandler(listener)


class Access:
    """The session in use.

    It is opened at once, and again when the server no longer accepts the credentials, which a
    rollout of many hours may well outlive. Where that fails it may succeed later, when the network
    of its program is back or somebody has logged in anew: that is told as a server that is away,
    for whoever asks to wait out.

    The context is the one that was chosen at first, whatever the kubeconfig's current one is by
    then, and the server stays the same: a rollout never goes on in another cluster.
    """

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._session = open_session(kubeconfig, context)
        self._renewing = threading.Lock()
        self._refusal = KubeconfigError("")
        self._locked_out_until = float("-inf")

    @property
    def session(self) -> Session:
        """The latest."""
        return self._session

    def renewed(self, refused: Session) -> Session:
        """Return a session with fresh credentials, made once however many threads were refused."""
        with self._renewing:
            if self._session is refused:
                self._session = self._login_anew()
            return self._session

    def _login_anew(self) -> Session:
        """Return a new session; a login that has just failed is not repeated for every thread that waits for it."""
        if time.monotonic() >= self._locked_out_until:
            try:
                return self._same_server()
            except KubeconfigError as error:
                self._refusal, self._locked_out_until = error, time.monotonic() + _LOGIN_PAUSE
        message = f"the credentials have expired and cannot be renewed: {self._refusal.message}"
        raise ApiUnavailableError(
            message, status=_UNAUTHORIZED, hint=self._refusal.hint
        ) from self._refusal

    def _same_server(self) -> Session:
        first = self._session
        session = open_session(self._kubeconfig, first.context or None)
        if session.server != first.server:
            raise KubeconfigError(
                "the kubeconfig now leads to another API server,"
                f" {without_userinfo(session.server)}",
                hint=(
                    f"This run stays with {without_userinfo(first.server)}. Restore that address,"
                    " or start again."
                ),
            )
        return session


class Recovery:
    """Hears of exchanges that failed; judges refusals by how long ago the last one did. For many threads.

    An API server that starts refuses everybody for a moment: it listens before it has read who may
    do what, so that users whose rights stand in the cluster are told 403 (and service accounts 401)
    which they are granted right after.

    Credentials that a server has accepted are no mistake of whoever runs this: refused later, they
    have expired or were replaced, or what the server asks about them is away. They may be accepted
    again, once an operator has seen to that.
    """

    def __init__(self) -> None:
        self._away_at = float("-inf")
        self._is_known = False

    def was_accepted(self) -> None:
        """Hear that the server knows the caller."""
        self._is_known = True

    def was_away(self) -> None:
        """Hear that the server did not answer, or broke off, or said that it cannot."""
        self._away_at = time.monotonic()

    def judge(self, error: ApiError) -> ApiError:
        """Return the refusal, or that the server is not to be relied on yet; one with a cause is about the object."""
        if isinstance(error, ApiUnavailableError):
            self.was_away()
            return error
        if error.status == _UNAUTHORIZED and self._is_known:
            return _passing(
                error, "what the API server has accepted before, it does not accept now"
            )
        if error.status not in _REFUSALS or error.causes:
            return error
        if time.monotonic() - self._away_at <= _STARTING_SECONDS:
            return _passing(error, "the API server was unavailable, and still refuses")
        return error


def _passing(error: ApiError, why: str) -> ApiUnavailableError:
    return ApiUnavailableError(
        f"{why}: {error.message}", status=error.status, reason=error.reason, hint=error.hint
    )
