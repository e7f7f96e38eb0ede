"""Notifications: where they go, read from the URLs that the operator wrote, and how they are sent beside the work.

A URL is a secret: whoever has it can write to the channel. Nothing but its scheme is ever shown,
and of a webhook its host: of a service's URL what stands in the host's place may be the token
itself.

Whoever posts a notification never waits, and nobody waits long at the end: a thread a destination,
so that one that hangs holds up no other, and all of them daemons, which end with the process.
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
_TRANSIENT = frozenset({408, 425, 429})
_LOGGERS = ("apprise", "urllib3.connectionpool", "requests")
_WEBHOOK = ("http", "https")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_LOG = logging.getLogger("rollout.notify")
# Seconds before each attempt.
_PAUSES = (0.0, 1.0, 4.0)
_AT_THE_END = 5.0


class DeliveryError(Exception):
    """A notification did not arrive; the message holds no secret. `final`: trying again would not help."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True, slots=True)
class Destination:
    """One place that notifications go to, by its name without its secrets, and what delivers one."""

    name: str
    deliver: Callable[[Note], None] = field(repr=False)

    def send(self, note: Note) -> None:
        """Deliver one; `DeliveryError` whatever goes wrong: Apprise's services raise what they like, URLs included."""
        try:
            self.deliver(note)
        except DeliveryError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            raise DeliveryError(f"it failed ({type(error).__name__})") from None


def _webhook(parts: Url) -> Callable[[Note], None]:
    """Return what POSTs to one URL; a user and password in it are sent as basic authentication."""
    place = parts._replace(auth=None, fragment=None).url
    headers = {"Content-Type": "application/json", "User-Agent": f"rollout/{__version__}"}
    if parts.auth:
        headers["Authorization"] = basic_authorization(parts.auth)

    def deliver(note: Note) -> None:
        try:
            exchange(place, _BOUNDS, headers, body=json_line(note), method="POST", by_proxy=True)
        except ExchangeError as error:
            final = error.status in _REFUSALS and error.status not in _TRANSIENT
            raise DeliveryError(f"it {error}", final=final) from None

    return deliver


def _service(url: str, name: str) -> Callable[[Note], None]:
    """Return what has Apprise deliver; why it could not, that tells only in logs, which may hold secrets."""
    plugin = _apprise().Apprise.instantiate(url)
    if plugin is None:
        raise UsageError(
            f"{name} is not a URL that Apprise understands",
            hint="See https://appriseit.com/services/ for how each service is written.",
        )
    # it would wait up to 5.5 s between two notifications, and the last one has no more time than
    # that
    plugin.request_rate_per_sec = 0

    def deliver(note: Note) -> None:
        if not plugin.notify(
            body=note.body, title=note.title, notify_type=note.level.value, body_format="text"
        ):
            raise DeliveryError("it was not accepted, or the service cannot be reached")

    return deliver


@cache
def _apprise() -> ModuleType:
    """Return the library, its logs and its transport's turned off: they show URLs."""
    try:
        module = import_module("apprise")
    except ImportError as error:
        raise UsageError(
            "notifications to anything but http:// and https:// need Apprise, which is not"
            " installed",
            hint=f"{sys.executable} -m pip install 'apprise>=1.9'",
        ) from error
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return module


def destinations(urls: Iterable[str]) -> tuple[Destination, ...]:
    """Return a destination a URL, each URL once; `UsageError`, which shows none of them, for one that is none."""
    return tuple(
        _destination(number, url) for number, url in enumerate(dict.fromkeys(urls), start=1)
    )


def _destination(number: int, url: str) -> Destination:
    scheme = match[1].lower() if (match := _SCHEME.match(url)) else ""
    if not scheme:
        raise UsageError(
            f"notification URL {number} has no scheme",
            hint="Write https://… for a webhook, or an Apprise URL: slack://…, mailto://….",
        )
    if scheme not in _WEBHOOK:
        name = f"{scheme}:// (URL {number})"
        return Destination(name, _service(url, name))
    parts = parse_url(url)
    if parts is None or not parts.host:
        raise UsageError(
            f"notification URL {number} is not a webhook URL", hint="Write it as https://host/path."
        )
    return Destination(f"{scheme}://{parts.netloc}", _webhook(parts))


class Outbox:
    """Everything on its way to every destination; `warn` hears of each destination's trouble once."""

    def __init__(self, destinations: Iterable[Destination], warn: Callable[[str], None]) -> None:
        self._lanes = tuple(_Lane(destination, warn) for destination in destinations)

    def post(self, note: Note) -> None:
        """Send it to every destination, some time."""
        for lane in self._lanes:
            lane.put(note)

    def close(self, seconds: float = _AT_THE_END) -> None:
        """Send what waits, for so long at most; what is left then is lost, and told."""
        deadline = time.monotonic() + seconds
        for lane in self._lanes:
            lane.put(None)
        for lane in self._lanes:
            lane.end(deadline)


class _Lane:
    """One destination: what waits for it, and the thread that sends it."""

    def __init__(self, destination: Destination, warn: Callable[[str], None]) -> None:
        self._destination = destination
        self._warn = warn
        self._waiting: SimpleQueue[Note | None] = SimpleQueue()
        self._has_warned = False
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._send_all, name=f"notify {destination.name}", daemon=True
        )
        self._thread.start()

    def put(self, note: Note | None) -> None:
        """Send one more; None is the last."""
        self._waiting.put(note)

    def end(self, deadline: float) -> None:
        """Wait for the thread; from then on it is not heard of any more."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._complain("what was left is not sent, as it did not answer in time")
        self._over.set()

    def _send_all(self) -> None:
        while (note := self._waiting.get()) is not None and not self._over.is_set():
            self._send(note)

    def _send(self, note: Note) -> None:
        """In a few attempts."""
        trouble = ""
        for pause in _PAUSES:
            if self._over.wait(pause):
                return
            try:
                self._destination.send(note)
            except DeliveryError as error:
                trouble = str(error)
                _LOG.debug("%s to %s: %s", note.event, self._destination.name, trouble)
                if error.final:
                    break
            else:
                _LOG.debug("%s was sent to %s", note.event, self._destination.name)
                return
        self._complain(trouble)

    def _complain(self, trouble: str) -> None:
        if not (self._has_warned or self._over.is_set()):
            self._has_warned = True
            self._warn(f"warning: notifications to {self._destination.name}: {trouble}")
