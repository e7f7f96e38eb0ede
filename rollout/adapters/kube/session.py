"""Credentials and connections from a kubeconfig, through the `kubernetes` package.

Its loader writes embedded certificates and keys into temporary files, which a killed process would
leave: they are read and removed at once. Files that the kubeconfig names are read for each
connection, because they may be replaced.
"""

import logging
import os
import socket
import ssl
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
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
from rollout.adapters.local_files import needing_temporary_folder
from rollout.adapters.secrets import header_value, masked, without_userinfo
from rollout.errors import ApiError, ApiUnavailableError, InputError, KubeconfigError
from rollout.model.tool_output import last_line

_UNAUTHORIZED = 401
_MOST_RECORDS = 100
# Connections kept for reuse. More threads open more.
_KEPT_CONNECTIONS = 64
# Seconds between a failed login and the next.
_LOGIN_PAUSE = 5.0
# An API server may still be starting after an outage.
_STARTING_SECONDS = 60.0
# How early to renew: a minute, or a fifth of a short lifetime.
_LONGEST_MARGIN = timedelta(minutes=1)
_SHARE_OF_LIFETIME = 0.2
_REFUSAL_STATUSES = (_UNAUTHORIZED, 403)
_CREDENTIALS_HINT = "Check the token, or the file or program that it comes from."
_SOCKS = "socks"
_KUBECONFIG_HINT = "Check it with: kubectl config view"
_PROXY_HINT = "Check HTTPS_PROXY and NO_PROXY: a proxy is http://HOST:PORT."
_LOOPBACK = "localhost,127.0.0.0/8,::1"


@dataclass(frozen=True, slots=True)
class ApiSession:
    """Connections to an API server, with credentials."""

    server: str
    pool: urllib3.PoolManager
    # The package's object with credentials.
    configuration: Any
    # Empty without a kubeconfig.
    context: str = ""
    impersonation: tuple[tuple[str, str], ...] = ()
    # Held to read credentials, which may renew them.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def with_credentials(self, headers: Mapping[str, str]) -> HTTPHeaderDict:
        """Return the headers with credentials, renewed if they expire soon.

        `ApiUnavailableError` if a header cannot carry them: later ones may.
        """
        with self.lock, _removing_temporary_files(), _collecting_errors():
            settings = self.configuration.auth_settings()
        complete = HTTPHeaderDict(headers)
        try:
            for setting in settings.values():
                if setting["value"]:
                    complete[setting["key"]] = header_value(setting["value"])
        except ValueError as error:
            raise ApiUnavailableError(
                f"the kubeconfig's credentials cannot be sent: they have {error}",
                status=_UNAUTHORIZED,
                hint=_CREDENTIALS_HINT,
            ) from None
        for name, value in self.impersonation:
            complete.add(name, value)
        return complete

    def without_credentials(self, body: bytes) -> bytes:
        """Return an answer with masked credentials: a server may send them back."""
        secrets = []
        for value in self.configuration.api_key.values():
            # Without a scheme such as `Bearer`.
            secrets += value.split()[-1:]
        text = masked(body.decode(errors="surrogateescape"), secrets)
        return text.encode(errors="surrogateescape")


def open_session(kubeconfig: Path | None, context: str | None) -> ApiSession:
    """Log in and prepare connections; nothing is sent yet. Raises `KubeconfigError`."""
    if kubeconfig is None and in_cluster():
        return _make_session(_configure_service_account(context), proxy="")
    login = find_login(kubeconfig, context)
    with _removing_temporary_files():
        session = _make_session(_load_configuration(login), proxy=login.proxy)
    return replace(session, context=login.context, impersonation=_impersonation(login))


def _impersonation(login: Login) -> tuple[tuple[str, str], ...]:
    try:
        return tuple((name, header_value(value)) for name, value in login.impersonation)
    except ValueError as error:
        raise KubeconfigError(
            f"user {login.user!r} of {login.origin} impersonates someone whose name has {error}",
            hint="Write names with ASCII characters, on one line.",
        ) from None


@contextmanager
def _removing_temporary_files() -> Iterator[None]:
    try:
        yield
    finally:
        # The package keeps them until the process ends.
        client_parts().kube_config._cleanup_temp_files()  # noqa: SLF001


def _configure_service_account(context: str | None) -> Any:
    if context:
        raise KubeconfigError(
            f"there is no context {context!r}: the pod's service account is used",
            hint="Drop --context, or name a --kubeconfig.",
        )
    parts = client_parts()
    configuration = parts.configuration.Configuration()
    with _raising_kubeconfig_errors("the pod's service account"):
        parts.incluster_config.load_incluster_config(configuration)
    return configuration


def _load_configuration(login: Login) -> Any:
    parts = client_parts()
    if login.program and login.program.interactive_mode == "Never":
        parts.programs.use_no_terminal()
    configuration = parts.configuration.Configuration()
    with (
        _raising_kubeconfig_errors(login.origin),
        needing_temporary_folder("a kubeconfig with certificates in it"),
        _collecting_errors() as records,
    ):
        # Only the private loader knows the expiry.
        loader = parts.kube_config._get_kube_config_loader(  # noqa: SLF001
            filename=os.pathsep.join(str(path) for path in login.files),
            active_context=login.context,
        )
        loader.load_and_set(configuration)
        Renewal(loader).renew_when_due(configuration)
    _check_program_gave_credentials(login, configuration, records)
    return configuration


def _check_program_gave_credentials(
    login: Login, configuration: Any, records: Sequence[logging.LogRecord]
) -> None:
    program = login.program
    if not program or configuration.api_key or configuration.cert_file:
        return
    why = f": {last_line(records[-1].getMessage())}" if records else ""
    by_hand = f"Run it manually, or see user {login.user!r} in {login.origin}."
    raise KubeconfigError(
        f"{program.command} gave no credentials{why}", hint=program.install_hint or by_hand
    )


class Renewal:
    """Renews credentials shortly before they expire.

    The package does so five minutes before: at every request for short-lived ones.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        # None without an expiry: renewed only after a 401.
        self._renewal_due: datetime | None = None

    def renew_when_due(self, configuration: Any) -> None:
        """Have the configuration's credentials renewed when that is due."""
        self._renewal_due = _renewal_time(getattr(self._loader, "expiry", None), datetime.now(UTC))
        configuration.refresh_api_key_hook = self._renew_if_due

    def _renew_if_due(self, configuration: Any) -> None:
        if self._renewal_due is not None and datetime.now(UTC) >= self._renewal_due:
            self._loader.load_and_set(configuration)
            self.renew_when_due(configuration)


def _renewal_time(expiry: datetime | None, fetched_at: datetime) -> datetime | None:
    """Return when to renew credentials; None if they have no expiry, or have expired."""
    if expiry is None or expiry <= fetched_at:
        return None
    return expiry - min(_LONGEST_MARGIN, (expiry - fetched_at) * _SHARE_OF_LIFETIME)


def _make_session(configuration: Any, *, proxy: str) -> ApiSession:
    tls_context = _tls_context(configuration)
    _check_credentials(configuration)
    _choose_proxy(configuration, proxy)
    configuration.connection_pool_maxsize = _KEPT_CONNECTIONS
    configuration.socket_options = _keep_alive_options()
    # This module's error says what to install.
    warnings.simplefilter("ignore", urllib3.exceptions.DependencyWarning)
    origin, hint = "the kubeconfig", _KUBECONFIG_HINT
    if configuration.proxy and not proxy:
        origin, hint = "the proxy of the environment", _PROXY_HINT
    with _raising_kubeconfig_errors(origin, hint):
        pool = client_parts().rest.RESTClientObject(configuration).pool_manager
    if tls_context is not None:
        pool.connection_pool_kw["ssl_context"] = tls_context
    if not configuration.verify_ssl:
        # The kubeconfig asks for this.
        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
    return ApiSession(configuration.host, pool, configuration)


def _keep_alive_options() -> list[tuple[int, int, int]]:
    """Keep an idle watch open through NAT, and notice a dead peer."""
    options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    seconds = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3}
    for name, value in seconds.items():
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _tls_context(configuration: Any) -> ssl.SSLContext | None:
    """Return a TLS context with the embedded certificates, if any.

    `KubeconfigError` for unusable ones, before any request.
    """
    context = create_urllib3_context(
        cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE
    )
    # With an empty passphrase OpenSSL does not ask.
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
    # It writes files only for embedded certificates.
    if not client_parts().kube_config._temp_files:  # noqa: SLF001
        return None
    if configuration.verify_ssl and not configuration.ssl_ca_cert:
        context.load_default_certs()
    configuration.ssl_ca_cert = None
    configuration.cert_file = None
    configuration.key_file = None
    # As for kubectl, the same authorities sign an HTTPS proxy's.
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
    """Set the kubeconfig's proxy, else the environment's except for loopback, as Go does.

    There HOST:PORT is an HTTP proxy, as for kubectl and curl.
    """
    if proxy:
        configuration.proxy = proxy
        return
    exceptions = [configuration.no_proxy, _LOOPBACK]
    configuration.no_proxy = ",".join(filter(None, exceptions))
    if configuration.proxy and "://" not in configuration.proxy:
        configuration.proxy = f"http://{configuration.proxy}"


@contextmanager
def _raising_kubeconfig_errors(origin: str, hint: str = _KUBECONFIG_HINT) -> Iterator[None]:
    """Turn the package's errors into `KubeconfigError`.

    Our own `InputError`, and missing modules other than PySocks, pass.
    """
    try:
        yield
    except InputError:
        raise
    except ModuleNotFoundError as error:
        if error.name != _SOCKS:
            raise
        raise KubeconfigError(
            f"{origin} cannot be used: a SOCKS proxy needs PySocks, which is not installed",
            hint=f"{sys.executable} -m pip install PySocks",
        ) from error
    except Exception as error:
        raise KubeconfigError(
            f"{origin} cannot be used: {without_userinfo(str(error))}", hint=hint
        ) from error


@contextmanager
def _collecting_errors() -> Iterator[list[logging.LogRecord]]:
    """Yield a list of logged errors: the package only logs some failures."""
    listener = BufferingHandler(_MOST_RECORDS)
    listener.setLevel(logging.ERROR)
    logging.getLogger().addHandler(listener)
    try:
        yield listener.buffer
    finally:
        logging.getLogger().removeHandler(listener)


class RenewableSession:
    """A session that a new login to the same server can replace."""

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._session = open_session(kubeconfig, context)
        self._login_lock = threading.Lock()
        # Why the last login failed, and until when none is tried.
        self._login_error = KubeconfigError("")
        self._no_login_until = float("-inf")

    @property
    def session(self) -> ApiSession:
        """The latest session."""
        return self._session

    def log_in_again(self, refused: ApiSession) -> ApiSession:
        """Return a session with new credentials, or raise `ApiUnavailableError`.

        Threads refused together share one login.
        """
        with self._login_lock:
            if self._session is refused:
                self._session = self._log_in_or_fail()
            return self._session

    def _log_in_or_fail(self) -> ApiSession:
        if time.monotonic() >= self._no_login_until:
            try:
                return self._open_same_server()
            except KubeconfigError as error:
                self._login_error = error
                self._no_login_until = time.monotonic() + _LOGIN_PAUSE
        raise ApiUnavailableError(
            f"the credentials have expired and cannot be renewed: {self._login_error.message}",
            status=_UNAUTHORIZED,
            hint=self._login_error.hint,
        ) from self._login_error

    def _open_same_server(self) -> ApiSession:
        first = self._session
        session = open_session(self._kubeconfig, first.context or None)
        if session.server != first.server:
            server = without_userinfo(session.server)
            raise KubeconfigError(
                f"the kubeconfig now leads to another API server, {server}",
                hint=f"Restore {without_userinfo(first.server)}, or start again.",
            )
        return session


class Recovery:
    """Tells refusals that may pass from final ones, for many threads.

    A starting API server refuses requests until it knows the roles. Credentials accepted before may
    have expired.
    """

    def __init__(self) -> None:
        self._latest_outage = float("-inf")
        self._was_accepted = False

    def note_acceptance(self) -> None:
        """Note that the credentials were accepted."""
        self._was_accepted = True

    def note_outage(self) -> None:
        """Note that the server was unavailable just now."""
        self._latest_outage = time.monotonic()

    def classify(self, error: ApiError) -> ApiError:
        """Return the error, or `ApiUnavailableError` for a refusal that may pass."""
        if isinstance(error, ApiUnavailableError):
            self.note_outage()
            return error
        if error.status == _UNAUTHORIZED and self._was_accepted:
            why = "credentials that the API server accepted before are refused"
            return _as_unavailable(error, why)
        # A refusal with causes is about the object: final.
        if error.status not in _REFUSAL_STATUSES or error.causes:
            return error
        if time.monotonic() - self._latest_outage <= _STARTING_SECONDS:
            return _as_unavailable(
                error, "the API server was unavailable and still refuses requests"
            )
        return error


def _as_unavailable(error: ApiError, why: str) -> ApiUnavailableError:
    return ApiUnavailableError(
        f"{why}: {error.message}", status=error.status, reason=error.reason, hint=error.hint
    )
