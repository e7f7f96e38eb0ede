"""Sends notifications without delaying the work.

A URL is a secret: messages show its scheme, and a webhook's host. Other hosts may be tokens.
"""

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from queue import SimpleQueue
from types import ModuleType

from urllib3.util import Url

from rollout import __version__
from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange, parse_url
from rollout.adapters.secrets import basic_authorization
from rollout.errors import UsageError
from rollout.model.json_text import json_line
from rollout.model.notification import Note

_BOUNDS = Bounds(seconds=5.0)
_REFUSALS = range(300, 500)
_TRANSIENT_REFUSALS = frozenset({408, 425, 429})
_LOGGERS_SHOWING_URLS = ("apprise", "urllib3.connectionpool", "requests")
_WEBHOOK_SCHEMES = ("http", "https")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_LOG = logging.getLogger("rollout.notify")
# Seconds before each attempt.
_ATTEMPT_PAUSES = (0.0, 1.0, 4.0)
_CLOSE_SECONDS = 5.0
_END_OF_QUEUE = None


class DeliveryError(Exception):
    """A notification was not delivered. The message has no secrets."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        # Retries would fail.
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Destination:
    """Where notifications are sent."""

    # Without secrets.
    name: str
    deliver_or_raise: Callable[[Note], None] = field(repr=False)

    def send(self, note: Note) -> None:
        """Deliver; errors become `DeliveryError`, as others may quote the URL."""
        try:
            self.deliver_or_raise(note)
        except DeliveryError:
            raise
        except Exception as error:  # noqa: BLE001 - Apprise's services raise anything
            raise DeliveryError(f"it failed ({type(error).__name__})") from None


def _webhook_delivery(parts: Url) -> Callable[[Note], None]:
    url = parts._replace(auth=None, fragment=None).url
    headers = {"Content-Type": "application/json", "User-Agent": f"rollout/{__version__}"}
    if parts.auth:
        headers["Authorization"] = basic_authorization(parts.auth)

    def deliver(note: Note) -> None:
        try:
            exchange(url, _BOUNDS, headers, body=json_line(note), method="POST", by_proxy=True)
        except ExchangeError as error:
            is_final = error.status in _REFUSALS and error.status not in _TRANSIENT_REFUSALS
            raise DeliveryError(f"it {error}", is_final=is_final) from None

    return deliver


def _apprise_delivery(url: str, name: str) -> Callable[[Note], None]:
    plugin = _import_apprise_silenced().Apprise.instantiate(url)
    if plugin is None:
        raise UsageError(
            f"{name} is not a URL that Apprise understands",
            hint="See https://appriseit.com/services/ for the format of each service's URL.",
        )
    # Apprise would wait up to 5.5 s.
    plugin.request_rate_per_sec = 0

    def deliver(note: Note) -> None:
        is_delivered = plugin.notify(
            body=note.body, title=note.title, notify_type=note.level.value, body_format="text"
        )
        if not is_delivered:
            # Apprise's log may hold secrets.
            raise DeliveryError("it was not accepted, or the service cannot be reached")

    return deliver


@cache
def _import_apprise_silenced() -> ModuleType:
    try:
        module = import_module("apprise")
    except ImportError as error:
        raise UsageError(
            "notification URLs other than http:// and https:// require Apprise, which is not"
            " installed",
            hint=f"{sys.executable} -m pip install 'apprise>=1.9'",
        ) from error
    for name in _LOGGERS_SHOWING_URLS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return module


def destinations(urls: Iterable[str]) -> tuple[Destination, ...]:
    """Return distinct destinations, or raise `UsageError`."""
    distinct = dict.fromkeys(urls)
    return tuple(_destination(number, url) for number, url in enumerate(distinct, start=1))


def _destination(number: int, url: str) -> Destination:
    match = _SCHEME.match(url)
    scheme = match[1].lower() if match else ""
    if not scheme:
        raise UsageError(
            f"notification URL {number} has no scheme",
            hint="Write https://… for a webhook, or an Apprise URL: slack://…, mailto://….",
        )
    if scheme not in _WEBHOOK_SCHEMES:
        name = f"{scheme}:// (URL {number})"
        return Destination(name, _apprise_delivery(url, name))
    parts = parse_url(url)
    if parts is None or not parts.host:
        raise UsageError(
            f"notification URL {number} is not a webhook URL",
            hint="Use a URL such as https://host/path.",
        )
    return Destination(f"{scheme}://{parts.netloc}", _webhook_delivery(parts))


class Outbox:
    """Sends notifications, in a daemon thread per destination."""

    def __init__(self, destinations: Iterable[Destination], warn: Callable[[str], None]) -> None:
        """`warn` gets at most one warning per destination."""
        self._queues = tuple(_DeliveryQueue(destination, warn) for destination in destinations)

    def post(self, note: Note) -> None:
        """Queue a notification."""
        for queue in self._queues:
            queue.put(note)

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Send what is queued, and warn of the rest."""
        deadline = time.monotonic() + seconds
        for queue in self._queues:
            queue.end_when_empty()
        for queue in self._queues:
            queue.await_end(deadline)


class _DeliveryQueue:
    def __init__(self, destination: Destination, warn: Callable[[str], None]) -> None:
        self._destination = destination
        self._warn = warn
        self._waiting: SimpleQueue[Note | None] = SimpleQueue()
        self._has_warned = False
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._send_all, name=f"notify {destination.name}", daemon=True
        )
        self._thread.start()

    def put(self, note: Note) -> None:
        self._waiting.put(note)

    def end_when_empty(self) -> None:
        self._waiting.put(_END_OF_QUEUE)

    def await_end(self, deadline: float) -> None:
        """Wait until the deadline, after which nothing is sent."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._warn_once(
                "the remaining notifications are not sent, because it did not respond in time"
            )
        self._ended.set()

    def _send_all(self) -> None:
        while not self._ended.is_set():
            note = self._waiting.get()
            if note is _END_OF_QUEUE:
                return
            self._send_with_retries(note)

    def _send_with_retries(self, note: Note) -> None:
        problem = ""
        for pause in _ATTEMPT_PAUSES:
            if self._ended.wait(pause):
                return
            try:
                self._destination.send(note)
            except DeliveryError as error:
                problem = str(error)
                _LOG.debug("%s to %s: %s", note.event, self._destination.name, problem)
                if error.is_final:
                    break
            else:
                _LOG.debug("%s was sent to %s", note.event, self._destination.name)
                return
        self._warn_once(problem)

    def _warn_once(self, problem: str) -> None:
        if not (self._has_warned or self._ended.is_set()):
            self._has_warned = True
            self._warn(f"warning: notifications to {self._destination.name}: {problem}")
