"""What a process asks of the lock: which Lease, as whom, and whose it need not wait for."""

from dataclasses import dataclass

from rollout.model import marks

SECONDS = 30


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What to hold and as whom. `seconds` is how long others must see no renewal before they may take it.

    The Lease of the run `unlock` is taken at once: an operator has made sure that its process is gone. So is its
    version `stale`, which was seen to go unrenewed for its whole duration, or whose process has ended here. Without
    `waits` no other is waited out: what was planned before another held it fits no more. `process` is a word that no
    other process has.
    """

    namespace: str
    holder: str
    run: str
    seconds: int = SECONDS
    patience: float = 600.0
    unlock: str = ""
    stale: str = ""
    waits: bool = True
    process: str = ""

    @property
    def annotations(self) -> dict[str, str]:
        """What the Lease says of its holder, beside the name."""
        return {marks.RUN: self.run, **({marks.PROCESS: self.process} if self.process else {})}
