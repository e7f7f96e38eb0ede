"""Passes one after another, for as long as the process lives.

Between two passes nobody holds the lock, so that a person may run a rollout. Of several processes one works, and the
others watch its Lease: where it goes unrenewed for its whole duration, the next one makes its pass at once.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rollout.cli import failures, wiring
from rollout.cli.stages.operate_pass import Lasting, PassEnd, PassSettings, make_pass
from rollout.cli.terminal import say
from rollout.errors import ApiError, RolloutError
from rollout.execution.lease import Holder, LeaseWatch, read_lease
from rollout.model.quantity import Duration
from rollout.ports import Clock, ClusterApi

_LOOK_AGAIN = 2.0


@dataclass(frozen=True, slots=True)
class Loop:
    """Makes passes.

    `every` is from the beginning of one pass to that of the next; signals wish for the end, and interrupt what is done
    until `undisturbed` is called.
    """

    every: Duration
    verbose: int
    clock: Clock
    lasting: Lasting
    undisturbed: Callable[[], None]

    def run(self, settings: PassSettings) -> None:
        """Return once a signal asks for it."""
        with suppress(KeyboardInterrupt):
            while not self.lasting.ending.requested:
                began = self.clock.monotonic()
                if self._pass(settings).signalled:
                    break
                self._idle(settings, began + self.every)
            self.undisturbed()
        # again, for an interruption that came first
        self.undisturbed()
        say("stopped on request: no further pass is made")

    def _pass(self, settings: PassSettings) -> PassEnd:
        """One pass; whatever goes wrong in it is told, and is over with it, unless nobody can be told any more."""
        try:
            return make_pass(settings, self.lasting)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - the next pass may well go right
            return PassEnd(failures.report(error, verbose=bool(self.verbose)))

    def _idle(self, settings: PassSettings, until: float) -> None:
        """Wait for the time of the next pass, and for whoever holds the lock then; not for one that is gone."""
        watch, ending = self.lasting.watch, self.lasting.ending
        tried, is_said = watch.stale, False
        api = self._api(settings)
        while not ending.requested:
            state = self._look(api, settings.namespace, watch)
            is_time = self.clock.monotonic() >= until
            if (is_time and state in (Holder.NOBODY, Holder.GONE)) or watch.stale not in ("", tried):
                return
            if is_time and not is_said:
                say(f"standing by: {watch.holder} holds the lock")
                is_said = True
            self.clock.wait(ending, _LOOK_AGAIN)

    def _look(self, api: ClusterApi | None, namespace: str, watch: LeaseWatch) -> Holder:
        """What is known of the lock's holder; while the API server is away, as much as before."""
        with suppress(ApiError):
            if api is not None:
                watch.look(read_lease(api, namespace))
        return watch.state

    def _api(self, settings: PassSettings) -> ClusterApi | None:
        """None where there is no way to it: the pass has told why."""
        with suppress(RolloutError):
            return wiring.cluster_api(settings.settings.cluster)
        return None
