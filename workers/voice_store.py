"""The records of the voices that clients made, and every move of one, each in one atomic step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys
from workers.broker import Scripts, broker_errors, dumped, hash_fields, pairs, text
from workers.id_index import IdIndex
from workers.job import JsonObject
from workers.states import Stage, pool_of
from workers.voice import NewVoice, Voice, name_digest

MOST_VOICES = 10_000
"""Of one model: a client in a loop must not fill the broker."""
HOLD_S = 60.0
"""Longer than preparing takes; after so long a voice whose worker died is prepared by another."""
_AGAIN_S = 5.0
_LOST = "the workers that prepared it were lost again and again"


class VoiceStore:
    """Raises ``StagewaveError(broker_unavailable)`` wherever the broker is away or full."""

    def __init__(self, client: redis.Redis, max_tries: int) -> None:
        self._client = client
        self._scripts = Scripts(client)
        self._max_tries = max_tries

    # -- what clients do -------------------------------------------------------------------------

    def create(self, voice_id: str, new: NewVoice) -> tuple[Voice, bool]:
        """False: the same voice stands under this name. Raises ``voice_exists`` for another under it,
        and ``too_many_voices``."""
        answer = self._scripts.run(
            "create_voice",
            args=(
                voice_id,
                name_digest(new.model, new.name),
                new.content,
                new.model,
                pool_of(Stage.TOKEN2WAV, new.model),
                MOST_VOICES,
                *("name", new.name),
                *("duration_s", new.duration_s),
                *("warnings", json.dumps(new.warnings)),
            ),
        )
        outcome, *known = [text(part) for part in cast(list[object], answer)]
        if outcome == "taken":
            raise StagewaveError(
                ErrorCode.VOICE_EXISTS, "another voice has this name: delete it, or take another name"
            )
        if outcome == "full":
            raise StagewaveError(ErrorCode.TOO_MANY_VOICES, f"there are {MOST_VOICES} voices: delete some")
        found_id = known[0] if known else voice_id
        # Our own id can be known already: the call was tried again after its answer was lost.
        return self.get(found_id), found_id == voice_id

    def find(self, model: str, name: str) -> Voice | None:
        """The voice that has this name now."""
        with broker_errors():
            found = self._client.hget(keys.CONTROL_PREFIXES["voice_names"], name_digest(model, name))
        return self._get_or_none(text(found)) if found is not None else None

    def page(self, model: str, after: str | None, limit: int) -> tuple[list[Voice], str | None]:
        """Newest first, and the cursor of the next page."""
        ids = IdIndex(self._client, keys.voices(model), keys.voice).ids(limit + 1, after)
        voices = [voice for voice_id in ids[:limit] if (voice := self._get_or_none(voice_id)) is not None]
        return voices, ids[limit - 1] if len(ids) > limit else None

    def delete(self, model: str, name: str) -> tuple[str, int] | None:
        """Take the name away; the voice's id, and how many jobs still use it. None: there is no such
        voice."""
        answer = cast(list[object], self._scripts.run("delete_voice", args=(name_digest(model, name),)))
        return (text(answer[0]), int(text(answer[1]))) if answer else None

    # -- what workers do -------------------------------------------------------------------------

    def get(self, voice_id: str) -> Voice:
        """Also one that was deleted, while jobs use it. Raises ``voice_unknown``."""
        with broker_errors():
            record = cast(dict[bytes, bytes], self._client.hgetall(keys.voice(voice_id)))
        if not record:
            raise StagewaveError(ErrorCode.VOICE_UNKNOWN, "there is no such voice", field="voice")
        return Voice.from_hash(hash_fields(record))

    def claim(self, pool: str, voice_id: str = "") -> Voice | None:
        """A voice to prepare, held for ``HOLD_S``: the one named, if it is due, or else any. None when
        nothing is due."""
        lost = json.dumps({"code": ErrorCode.WORKER_LOST.code, "message": _LOST})
        args = (pool, voice_id, int(HOLD_S * 1000), self._max_tries, lost)
        record = self._scripts.run("claim_voice", args=args)
        return Voice.from_hash(pairs(record)) if record else None

    def settle_ready(self, voice: Voice) -> None:
        self._settle(voice, "ready")

    def settle_failed(self, voice: Voice, error: StagewaveError) -> None:
        """For good, unless trying again can help and tries are left. A store that is away is no fault of
        the voice's, and costs it none."""
        away = error.code is ErrorCode.STORE_UNAVAILABLE
        again = away or (error.code.retryable and voice.tries < self._max_tries)
        body: JsonObject = {"code": error.code.code, "message": error.message}
        self._settle(voice, "preparing" if again else "failed", body, counts=not away)

    def _settle(
        self, voice: Voice, status: str, error: JsonObject | None = None, *, counts: bool = True
    ) -> None:
        told = dumped(error)
        args = (voice.id, voice.tries, status, told, int(_AGAIN_S * 1000), int(not counts))
        self._scripts.run("settle_voice", args=args)

    # -- what the scheduler does -----------------------------------------------------------------

    def count_due(self, pool: str, now: float) -> int:
        """Voices of a pool that wait to be prepared."""
        with broker_errors():
            return int(self._client.zcount(keys.voices_due(pool), "-inf", now * 1000))

    def unused(self) -> Iterator[str]:
        """Ids of deleted voices that no job uses any more."""
        with broker_errors():
            ids = cast(set[bytes], self._client.smembers(keys.CONTROL_PREFIXES["voices_deleted"]))
        for voice_id in sorted(text(one) for one in ids):
            with broker_errors():
                used = self._client.scard(keys.voice_jobs(voice_id))
            if not used:
                yield voice_id

    def forget(self, voice_id: str) -> None:
        """Drop the record of a deleted voice, unless a job uses it."""
        self._scripts.run("forget_voice", args=(voice_id,))

    def exists(self, voice_id: str) -> bool:
        with broker_errors():
            return bool(self._client.exists(keys.voice(voice_id)))

    def _get_or_none(self, voice_id: str) -> Voice | None:
        try:
            return self.get(voice_id)
        except StagewaveError as error:
            if error.code is ErrorCode.VOICE_UNKNOWN:
                return None
            raise
