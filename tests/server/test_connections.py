"""Who is connected, counted by address."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from rollout.server.connections import SHARE_OF_ADDRESS, OpenConnections


def peer(address: str) -> Any:
    handler = Mock()
    handler.transport.get_extra_info = lambda _name: (address, 40000)
    return handler


def of(handler: Any) -> Any:
    return lambda: handler


@pytest.mark.parametrize(
    ("one", "other", "is_closed"),
    [
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8::1", "2001:DB8:0::1", True),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_one_address_has_its_part_of_the_connections_however_it_is_spelled(
    one: str,
    other: str,
    is_closed: bool,  # noqa: FBT001 - a parameter
) -> None:
    first = peer(one)
    second = peer(other)

    async def open_both() -> None:
        connections = OpenConnections(int(2 / SHARE_OF_ADDRESS))
        connections.accept(of(first))
        await asyncio.sleep(0)
        connections.accept(of(second))
        await asyncio.sleep(0)

    asyncio.run(open_both())
    assert first.force_close.called == is_closed
