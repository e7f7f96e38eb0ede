"""Zincati's requests and times, as its sources make them."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from aiohttp import web

from rollout.lab.clock import LabClock
from rollout.lab.hosts.machine import HostSettings, Machine, ZincatiHost
from rollout.lab.hosts.zincati import (
    DROP_IN,
    PRE_REBOOT,
    STEADY_STATE,
    Zincati,
    ZincatiRequest,
    drop_in,
)

SPEED = 2000


@dataclass
class Server:
    """A FleetLock server that answers as it is told: statuses by path, in their order, then 200 for
    ever.
    """

    statuses: dict[str, list[int]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, dict(request.headers), await request.read()))
        assert request.method == "POST"
        left = self.statuses.get(request.path.removeprefix("/fleet/"), [])
        status = left.pop(0) if left else 200
        if status == 299:
            return web.Response(status=status, text="anything")
        return web.json_response({"kind": "full", "value": "all slots are taken"}, status=status)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/fleet/"
    try:
        yield server
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of a machine and a server that know no events
            await asyncio.sleep(0.005)


Act = Callable[[Machine, Zincati, Server], Awaitable[None]]


def live(act: Act, server: Server) -> Sequence[ZincatiRequest]:
    """One host's life until `act` has seen enough; what its agent asked."""

    async def lived() -> Sequence[ZincatiRequest]:
        settings = HostSettings(zincati=ZincatiHost())
        rng = random.Random(1)  # noqa: S311
        machine = Machine("worker-1", "127.0.0.1", settings, clock=LabClock(SPEED), rng=rng)
        agent = Zincati(machine, rng=random.Random(2))  # noqa: S311
        async with serving(server):
            machine.files[DROP_IN] = drop_in(server.url, "workers")
            agent.start()
            try:
                await act(machine, agent, server)
            finally:
                machine.stop()
                await asyncio.gather(*machine.background, return_exceptions=True)
        return agent.answers

    return asyncio.run(lived())


async def rebooted(machine: Machine, agent: Zincati, _server: Server) -> None:
    """And steady again."""
    await until(lambda: machine.reboots == 1 and agent.answers[-1].path == STEADY_STATE)


def test_a_life_is_steady_ask_reboot_steady_by_requests_as_reqwest_sends_them() -> None:
    """No user agent, no content type, no wish for compression; a body that is written for people."""
    server = Server()
    answers = live(rebooted, server)
    assert [answer.path for answer in answers] == [STEADY_STATE, PRE_REBOOT, STEADY_STATE]
    assert not any(answer.kind for answer in answers)
    assert [path for path, _, _ in server.asked] == [f"/fleet/{answer.path}" for answer in answers]
    _, headers, body = server.asked[1]
    assert headers["fleet-lock-protocol"] == "true"
    assert {name.lower() for name in headers} == {
        "host",
        "accept",
        "content-length",
        "fleet-lock-protocol",
    }
    document = json.loads(body)
    assert list(document["client_params"]) == ["id", "group"]
    assert document["client_params"]["group"] == "workers"
    assert body == json.dumps(document, indent=2).encode()


def test_a_refused_host_asks_again_five_minutes_later() -> None:
    """And up to a tenth more, in steps of three seconds."""
    server = Server({PRE_REBOOT: [423, 500, 404], STEADY_STATE: [503]})
    answers = live(rebooted, server)
    assert [answer.kind for answer in answers] == ["full", "", "full", "full", "full", "", ""]
    refused = [(before, after) for before, after in pairwise(answers) if before.kind]
    assert all(after.at - before.at >= 300 for before, after in refused)
    # at once where the state has changed
    assert answers[2].at - answers[1].at < 300
