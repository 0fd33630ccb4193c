import socket

import pytest
from flask import Flask

from api.waiting_room import WaitingRoom
from stage_pipeline.errors import ErrorCode, StagewaveError


@pytest.fixture
def peers():
    ours, theirs = socket.socketpair()
    app = Flask("test")
    with app.test_request_context(environ_overrides={"gunicorn.socket": ours}), ours, theirs:
        yield theirs


def test_there_are_only_so_many_seats(peers):
    room = WaitingRoom(2)
    first, second = room.sit(), room.sit()
    assert first is not None and second is not None
    assert room.sit() is None
    with pytest.raises(StagewaveError) as caught:
        room.sit_or_refuse()
    assert caught.value.code is ErrorCode.TOO_MANY_WAITERS
    first.leave()
    first.leave()
    assert room.taken == 1
    assert room.sit() is not None


def test_a_seat_is_free_again_after_an_error(peers):
    room = WaitingRoom(1)
    with pytest.raises(ZeroDivisionError), room.seated() as seat:
        assert seat is not None
        raise ZeroDivisionError
    assert room.taken == 0


def test_waiting_is_over_when_the_room_closes(peers):
    room = WaitingRoom(1)
    seat = room.sit_or_refuse()
    assert not seat.over
    room.close()
    assert seat.over
    assert room.sit() is None


def test_waiting_is_over_when_the_client_hangs_up_but_not_when_it_writes_on(peers):
    seat = WaitingRoom(1).sit_or_refuse()
    peers.sendall(b"GET /next")
    assert not seat.over
    peers.close()
    # What it wrote before is still there to read; only behind it stands the end.
    seat._peer.recv(100)
    assert seat.over
