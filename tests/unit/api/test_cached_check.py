import threading

from api.cached_check import CachedCheck
from stage_pipeline.errors import ErrorCode, StagewaveError


def test_a_result_is_kept_for_a_while():
    calls = []
    check = CachedCheck(lambda: calls.append(1), keep_s=60)
    assert [check.result() for _ in range(3)] == [{"ok": True}] * 3
    assert len(calls) == 1


def test_a_failure_is_told_in_its_public_words():
    def fail() -> None:
        raise StagewaveError(ErrorCode.STORE_UNAVAILABLE, "the object store cannot be reached")

    assert CachedCheck(fail, 60).result() == {"ok": False, "detail": "the object store cannot be reached"}


def test_a_check_that_hangs_holds_up_only_the_request_that_makes_it():
    begun, release = threading.Event(), threading.Event()
    hangs = False

    def look() -> None:
        if hangs:
            begun.set()
            release.wait(10)

    check = CachedCheck(look, keep_s=0)
    assert check.result() == {"ok": True}
    hangs = True
    slow = threading.Thread(target=check.result)
    slow.start()
    begun.wait(10)
    assert check.result() == {"ok": True}, "the last one, at once"
    release.set()
    slow.join(10)
