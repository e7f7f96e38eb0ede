"""Zincati, as far as it asks a FleetLock server before it reboots its host and tells it when the host is back.

What it sends and when is read from its sources: `src/fleet_lock/mod.rs` (requests),
`src/update_agent` (states and times), `src/identity/mod.rs` (the id), `src/config` (the drop-ins).
Other than there only the drop-in that rollout prints is read, and before each request, so that a
lab's host needs no restart of the unit.
"""

import asyncio
import hmac
import json
import random
import ssl
import tomllib
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin

import aiohttp

from rollout.lab.hosts.machine import ZINCATI, HostEvent, Machine

STEADY_STATE: Final = "v1/steady-state"
PRE_REBOOT: Final = "v1/pre-reboot"
DROP_IN: Final = "/etc/zincati/config.d/55-rollout-fleetlock.toml"
ANCHORS: Final = "/etc/pki/ca-trust/source/anchors/"
_APPLICATION: Final = bytes.fromhex("de35106b6ec24688b63afddaa156679b")
_STRATEGY: Final = "fleet_lock"
_REFRESH_SECONDS: Final = 300
_HTTP_SECONDS: Final = 30 * 60
_SUCCESS: Final = range(200, 300)
# systemd starts a unit anew that has failed.
_RESTART_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class ZincatiRequest:
    """One request and what came of it: `at` in simulated seconds, `kind` empty where it was granted."""

    at: float
    path: str
    kind: str


def node_id(machine_id: str) -> str:
    """Return the app-specific id that systemd makes of a machine's: an HMAC of Zincati's by it, marked as a UUID v4."""
    digest = bytearray(
        hmac.digest(bytes.fromhex(machine_id.replace("-", "")), _APPLICATION, "sha256")[:16]
    )
    digest[6] = (digest[6] & 0x0F) | 0x40
    digest[8] = (digest[8] & 0x3F) | 0x80
    return digest.hex()


def request_body(machine_id: str, group: str) -> bytes:
    """Return the body of both requests, as serde writes it for people."""
    return json.dumps(
        {"client_params": {"id": node_id(machine_id), "group": group}}, indent=2
    ).encode()


def drop_in(base_url: str, group: str) -> str:
    """Return a drop-in that has a host ask there."""
    lines = (
        "[updates]",
        f'strategy = "{_STRATEGY}"',
        "[updates.fleet_lock]",
        f"base_url = {json.dumps(base_url)}",
    )
    return "\n".join((*lines, "[identity]", f"group = {json.dumps(group)}", ""))


def settings_of(text: str) -> tuple[str, str] | None:
    """Return base URL and group of a drop-in; None where no server is to be asked."""
    written = tomllib.loads(text)
    updates = written.get("updates", {})
    base_url = updates.get(_STRATEGY, {}).get("base_url")
    if not base_url or updates.get("strategy") != _STRATEGY or not updates.get("enabled", True):
        return None
    return base_url, written.get("identity", {}).get("group") or "default"


class Zincati:
    """The agent of one host; it starts with the host and ends with it.

    `answers` has every request of all its lives.
    """

    def __init__(self, machine: Machine, *, rng: random.Random) -> None:
        self.answers: list[ZincatiRequest] = []
        self._machine = machine
        self._rng = rng
        self._life: asyncio.Task[object] | None = None
        machine.observers.append(lambda event: self.start() if event is HostEvent.UP else None)

    def start(self) -> None:
        """Begin: report the steady state first, as after every start of the unit."""
        self._life = self._machine.spawn(self._live())

    def restart(self) -> None:
        """As the unit is restarted on a host that stays up: what it was granted is forgotten."""
        if self._life is not None:
            self._life.cancel()
        self.start()

    async def _live(self) -> None:
        timeout = aiohttp.ClientTimeout(total=self._machine.clock.scaled(_HTTP_SECONDS))
        # reqwest sends none of them
        silent = ("User-Agent", "Content-Type", "Accept-Encoding")
        async with aiohttp.ClientSession(timeout=timeout, skip_auto_headers=silent) as session:
            await self._ask_until_granted(session, STEADY_STATE)
            while self._machine.engine.staged is None:
                self._machine.attempt_update()
                await self._pause(_REFRESH_SECONDS)
            await self._ask_until_granted(session, PRE_REBOOT)
        self._machine.reboot()

    async def _ask_until_granted(self, session: aiohttp.ClientSession, path: str) -> None:
        while await self._refusal(session, path):
            await self._pause(_REFRESH_SECONDS)

    async def _refusal(self, session: aiohttp.ClientSession, path: str) -> str:
        """Ask once: the kind of a failure, empty for any 2xx, of which nothing else is read."""
        base_url, group = await self._settings()
        url = urljoin(base_url, path)
        body = request_body(self._machine.machine_id, group)
        headers = {"fleet-lock-protocol": "true"}
        try:
            async with session.post(
                url, data=body, headers=headers, ssl=self._trust(url)
            ) as response:
                kind = (
                    ""
                    if response.status in _SUCCESS
                    else _kind(response.status, await response.read())
                )
        except (aiohttp.ClientError, TimeoutError, OSError):
            kind = "client_failed_request"
        self.answers.append(ZincatiRequest(self._machine.clock.monotonic(), path, kind))
        return kind

    def _trust(self, url: str) -> ssl.SSLContext | bool:
        """Return this machine's authorities, and those among the host's anchors."""
        anchors = [text for path, text in self._machine.files.items() if path.startswith(ANCHORS)]
        return (
            ssl.create_default_context(cadata="\n".join(anchors))
            if anchors and url.startswith("https:")
            else True
        )

    async def _settings(self) -> tuple[str, str]:
        """Return what counts now; a unit that is stopped, or that no drop-in leads to a server, asks nobody."""
        while True:
            settings = settings_of(self._machine.files.get(DROP_IN, ""))
            if settings is not None and self._machine.units.active(ZINCATI):
                return settings
            await self._sleep(_RESTART_SECONDS)

    async def _pause(self, seconds: int) -> None:
        # up to a tenth more, drawn anew: that keeps hosts out of step
        await self._sleep(seconds + max(seconds // 100, 1) * self._rng.randint(0, 10))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(self._machine.clock.scaled(seconds))


def _kind(status: int, body: bytes) -> str:
    """Return the kind of an error as the protocol has it, or the agent's own word for any other answer."""
    try:
        return str(json.loads(body)["kind"])
    except (ValueError, TypeError, KeyError):
        return f"generic_http_{status}"
