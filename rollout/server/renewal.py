"""A certificate that is replaced on disk while it is served with: as Kubernetes does with a Secret that is renewed."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

CHECK_SECONDS: Final = 10.0
_LOGGER = logging.getLogger(__name__)


async def follow(files: tuple[Path, Path | None], served: ssl.SSLContext, fresh: Callable[[], object]) -> None:
    """Have new connections get what is in the files, unless `fresh` finds it unfit; until this is cancelled."""
    seen = _stamp(files)
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        stamp = _stamp(files)
        if stamp == seen:
            continue
        seen = stamp
        try:
            # a certificate without its key would spoil the one that is served with
            fresh()
            served.load_cert_chain(*files)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the new one, the old one is served with
            _LOGGER.warning("warning: the old certificate stays in use: %s", error)


def _stamp(files: tuple[Path, Path | None]) -> tuple[int, ...]:
    """What changes when a file is replaced; 0 for one that cannot be seen now."""
    return tuple(_changed(file) for file in files if file is not None)


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
