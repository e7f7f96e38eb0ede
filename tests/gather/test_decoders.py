"""Many threads that meet the same structs for the first time, in a process of their own: the failure is a crash."""

import subprocess
import sys

RACE = """
import sys, threading
import msgspec
from rollout.gather.cluster.wire import decoder_of

sys.setswitchinterval(1e-6)
BODY = b'{"f0": {"g0": 1, "g9": {"a": 2}}, "f9": {"g0": 3}}'


def fresh(number):
    inner = msgspec.defstruct(f"Inner{number}", [(f"g{i}", dict[str, int] | int | None, None) for i in range(20)])
    return msgspec.defstruct(f"Outer{number}", [(f"f{i}", inner | None, None) for i in range(20)])


def decode(shape, start):
    start.wait()
    decoder_of(shape).decode(BODY)


for number in range(150):
    shape, start = fresh(number), threading.Barrier(6)
    threads = [threading.Thread(target=decode, args=(shape, start)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_first_meetings_in_many_threads_crash_nothing() -> None:
    """With msgspec alone it ends with a segmentation fault, every time."""
    ended = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False, timeout=100)
    assert ended.returncode == 0, ended.stderr
