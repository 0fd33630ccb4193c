"""One running attempt, and the thread that keeps the leases of all attempts of a process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from stage_pipeline.errors import StagewaveError
from workers.claim_store import Claim, ClaimStore
from workers.pulse import Pulse

_log = logging.getLogger(__name__)
Item = TypeVar("Item")


class AttemptLost(Exception):
    """The job was canceled, ended or taken over: stop, and change nothing more."""


class AttemptReleased(Exception):
    """This process stops: hand the job back to the queue."""


class Attempt:
    """What a runner holds while it works on a claim."""

    def __init__(self, claim: Claim, pulse: Pulse | None = None) -> None:
        self.claim = claim
        self._pulse = pulse or Pulse()
        self.job = claim.job
        self.number = claim.attempt
        spec = claim.job.spec
        self.listening = claim.listening or spec.live or spec.mode == "async_chunk"
        """Whether somebody listens, or wants to; true is for good."""
        self._end: type[AttemptLost | AttemptReleased] | None = None
        self._on_end: Callable[[], None] | None = None
        self._lock = threading.Lock()

    @property
    def background(self) -> bool:
        """Whether nobody waits for it in particular: it belongs to a batch, and nobody listens."""
        return self.job.spec.batch_id is not None and not self.listening

    @property
    def request_id(self) -> str:
        """The attempt's name in an engine."""
        return f"{self.job.id}-{self.claim.stage}-{self.number}"

    def check(self) -> None:
        """Called between steps of the work; raises ``AttemptLost`` or ``AttemptReleased``."""
        if self._end is not None:
            raise self._end

    def steps(self, made: Iterator[Item]) -> Iterator[Item]:
        """What an engine makes for this attempt, piece by piece, checked after each. Whoever runs an engine
        takes its pieces through here: that is how an engine that hangs is noticed."""
        for piece in self._pulse.steps(self, made):
            self.check()
            yield piece

    @property
    def ended(self) -> bool:
        return self._end is not None

    def on_end(self, stop: Callable[[], None]) -> None:
        """How to make the engine stop, should the attempt end from outside; called at most once."""
        with self._lock:
            self._on_end = stop
            late = self._end is not None
        if late:
            stop()

    def end(self, why: type[AttemptLost | AttemptReleased]) -> None:
        with self._lock:
            if self._end is not None:
                return
            self._end = why
            stop = self._on_end
        if stop is not None:
            stop()


class LeaseKeeper:
    """Renews every lease of this process in one call each ``heartbeat_s``, and ends what is lost."""

    def __init__(self, claims: ClaimStore, heartbeat_s: float) -> None:
        self._claims = claims
        self._heartbeat_s = heartbeat_s
        self.pulse = Pulse()
        """Of the engine that all these attempts share."""
        self._attempts: set[Attempt] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def hold(self, claim: Claim) -> Attempt:
        """From now on its lease is renewed, until ``drop``."""
        attempt = Attempt(claim, self.pulse)
        with self._lock:
            self._attempts.add(attempt)
        return attempt

    def drop(self, attempt: Attempt) -> None:
        with self._lock:
            self._attempts.discard(attempt)

    @property
    def running(self) -> int:
        return len(self._attempts)

    @property
    def has_suspect(self) -> bool:
        with self._lock:
            return any(attempt.claim.suspect for attempt in self._attempts)

    def release_all(self, lost: Collection[object] = ()) -> None:
        """End every attempt as released: this process stops. The leases of those that are ``lost`` are not
        renewed any more."""
        with self._lock:
            self._attempts.difference_update(lost)
            attempts = list(self._attempts)
        for attempt in attempts:
            attempt.end(AttemptReleased)

    def _run(self) -> None:
        while not self._stop.wait(self._heartbeat_s):
            try:
                self._renew()
            except StagewaveError:
                # The broker is away. The work goes on: every write is fenced, so it is safe, and when the
                # broker is back before the lease ran out, nothing was lost.
                _log.warning("leases not renewed", extra={"attempts": self.running})
            except Exception:
                # Without this thread the process would go on with leases that nobody renews.
                _log.exception("leases not renewed")

    def _renew(self) -> None:
        with self._lock:
            attempts = list(self._attempts)
        if not attempts:
            return
        answers = self._claims.renew([attempt.claim for attempt in attempts])
        for attempt, answer in zip(attempts, answers, strict=True):
            if answer == 0:
                attempt.end(AttemptLost)
            elif answer == 2:
                attempt.listening = True
