"""The embedded broker and object store as real processes: started, killed, started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis

from stage_pipeline.errors import StagewaveError
from stagewave.child import Child
from stagewave.embedded_broker import EmbeddedBroker
from stagewave.embedded_process import EmbeddedServiceError
from stagewave.embedded_store import EmbeddedStore
from stagewave.will import Will
from workers.object_store import ObjectStore
from workers.settings import Settings

BUCKET = "stagewave"


@contextmanager
def named(will: Will, service: EmbeddedBroker | EmbeddedStore) -> Iterator[None]:
    """Stopped at the end, whatever happens."""
    try:
        service.start()
        pid = service.child.pid
        assert pid is not None
        will.add(pid)
        yield
        will.remove(pid)
    finally:
        service.stop()


@pytest.fixture
def broker(tmp_path: Path, will: Will) -> Iterator[EmbeddedBroker]:
    # A folder may have any name.
    made = EmbeddedBroker(tmp_path / "a, b'ü\"$" / "broker")
    with named(will, made):
        yield made


@pytest.fixture
def store(tmp_path: Path, will: Will) -> Iterator[EmbeddedStore]:
    made = EmbeddedStore(tmp_path / "a, b'ü\"$" / "store", BUCKET)
    with named(will, made):
        yield made


def client_of(broker: EmbeddedBroker) -> redis.Redis:
    return redis.Redis.from_url(broker.url, decode_responses=True)


def objects_of(store: EmbeddedStore, **keys: str) -> ObjectStore:
    using = {"s3_access_key": store.access_key, "s3_secret_key": store.secret_key} | keys
    return ObjectStore(Settings(s3_endpoint=store.endpoint, s3_bucket=BUCKET, **using))


def read(objects: ObjectStore, key: str) -> bytes:
    with objects.open(key) as stored:
        return b"".join(stored.iter_chunks())


def kill(child: Child) -> None:
    child.signal(signal.SIGKILL)
    while child.exit_code() is None:
        time.sleep(0.01)


def listening(pid: int) -> set[tuple[str, int]]:
    """Address and port of every socket that a process listens on, from the kernel's own table."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(fd))
        except FileNotFoundError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[column] for column in (1, 3, 9))
            if state == "0A" and f"socket:[{inode}]" in inodes:
                address, port = local.split(":")
                found.add((address, int(port, 16)))
    return found


LOOPBACK_IN_TABLE = "0100007F"
needs_proc = pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="reads Linux's /proc")


def test_the_broker_answers_with_its_password_alone(broker: EmbeddedBroker) -> None:
    assert client_of(broker).ping()
    address = broker.url.partition("@")[2]
    for wrong in (f"redis://{address}", f"redis://:wrong@{address}"):
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(wrong).ping()


def test_the_broker_shows_its_password_to_nobody_else(broker: EmbeddedBroker) -> None:
    password = (broker.folder / "password").read_text()
    for path in broker.folder.iterdir():
        if path.is_file() and password in path.read_text(errors="replace"):
            assert path.stat().st_mode & 0o077 == 0, path.name
    assert broker.folder.stat().st_mode & 0o077 == 0
    shown = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(broker.child.pid)], capture_output=True, text=True
    )
    assert "valkey" in shown.stdout
    assert password not in shown.stdout


@needs_proc
def test_the_broker_listens_on_loopback_alone(broker: EmbeddedBroker) -> None:
    assert {address for address, _ in listening(broker.child.pid or 0)} == {LOOPBACK_IN_TABLE}


def test_the_broker_refuses_what_could_harm_its_machine(broker: EmbeddedBroker) -> None:
    client = client_of(broker)
    for command in ("CONFIG SET dir /tmp", "MODULE LOAD /x.so", "DEBUG SLEEP 0"):
        with pytest.raises(redis.ResponseError):
            client.execute_command(*command.split())


def test_the_broker_forgets_nothing_when_it_is_stopped(broker: EmbeddedBroker) -> None:
    client_of(broker).set("a", "b")
    url = broker.url
    started = time.monotonic()
    broker.stop()
    assert time.monotonic() - started < 3
    assert broker.child.exit_code() == 0
    broker.start()
    assert broker.url == url
    assert client_of(broker).get("a") == "b"


def test_the_broker_forgets_nothing_when_it_is_killed_while_it_writes(broker: EmbeddedBroker) -> None:
    client = client_of(broker)
    for number in range(1000):
        client.rpush("list", number)
        client.xadd("stream", {"n": number})
    kill(broker.child)
    broker.start()
    again = client_of(broker)
    assert again.lrange("list", 0, -1) == [str(number) for number in range(1000)]
    assert again.xlen("stream") == 1000


def test_the_broker_takes_a_log_whose_end_was_cut_off(broker: EmbeddedBroker) -> None:
    client_of(broker).set("a", "b")
    kill(broker.child)
    (log,) = (broker.folder / "appendonlydir").glob("*.incr.aof")
    with log.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$1\r\nc\r\n$100\r\nhalf of it")
    broker.start()
    assert client_of(broker).get("a") == "b"
    assert client_of(broker).get("c") is None


def test_a_log_that_cannot_be_read_stops_the_start_and_says_so(broker: EmbeddedBroker) -> None:
    for number in range(10):
        client_of(broker).set("a", number)
    broker.stop()
    (log,) = (broker.folder / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(b"nonsense\r\n" + log.read_bytes())
    with pytest.raises(EmbeddedServiceError, match="Bad file format"):
        broker.start()
    assert broker.child.exit_code() is not None


def test_a_second_broker_in_the_folder_is_refused_and_harms_nothing(broker: EmbeddedBroker) -> None:
    client_of(broker).set("a", "b")
    before = broker.url
    with pytest.raises(EmbeddedServiceError, match="another process"):
        EmbeddedBroker(broker.folder).start()
    kill(broker.child)
    broker.child.start()
    deadline = time.monotonic() + 10
    while True:
        try:
            assert redis.Redis.from_url(before, decode_responses=True).get("a") == "b"
            break
        except redis.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_start_waits_for_a_broker_that_is_just_ending(broker: EmbeddedBroker) -> None:
    client_of(broker).set("a", "b")
    os.kill(broker.child.pid or 0, signal.SIGTERM)
    second = EmbeddedBroker(broker.folder)
    try:
        second.start()
        assert client_of(second).get("a") == "b"
    finally:
        second.stop()


def test_the_broker_takes_the_port_it_is_given_and_says_when_it_is_taken(
    tmp_path: Path, will: Will
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(EmbeddedServiceError, match="Address already in use"):
            EmbeddedBroker(tmp_path / "broker", port=port).start()
    broker = EmbeddedBroker(tmp_path / "broker", port=port)
    with named(will, broker):
        assert broker.url.endswith(f"@127.0.0.1:{port}/0")
        assert client_of(broker).ping()


def test_the_broker_moves_when_somebody_has_taken_its_port(broker: EmbeddedBroker) -> None:
    client_of(broker).set("a", "b")
    url = broker.url
    broker.stop()
    with socket.create_server(("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0]))):
        broker.start()
        assert broker.url != url
        assert client_of(broker).get("a") == "b"


def test_a_full_broker_refuses_writes_and_keeps_what_it_has(tmp_path: Path, will: Will) -> None:
    broker = EmbeddedBroker(tmp_path / "broker", maxmemory_bytes=4_000_000)
    with named(will, broker):
        client = client_of(broker)
        client.set("first", "1")
        with pytest.raises(redis.OutOfMemoryError):
            for number in range(100):
                client.set(f"k{number}", "x" * 100_000)
        assert client.get("first") == "1"


def test_ctrl_c_reaches_neither_and_both_end_with_their_supervisor(tmp_path: Path) -> None:
    """They run in sessions of their own; when their supervisor is killed, its last will ends them."""
    script = f"""
import os, signal, sys, time
from pathlib import Path
from stagewave.embedded_broker import EmbeddedBroker
from stagewave.embedded_store import EmbeddedStore
from stagewave.will import Will
signal.signal(signal.SIGINT, signal.SIG_IGN)
folder = Path({str(tmp_path)!r})
will = Will(os.open(folder / "lock", os.O_RDWR | os.O_CREAT))
services = EmbeddedBroker(folder / "broker"), EmbeddedStore(folder / "store", "stagewave")
for service in services:
    service.start()
    will.add(service.child.pid)
print(*(service.child.pid for service in services), flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, process_group=0
    ) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(word) for word in supervisor.stdout.readline().split()]
        os.killpg(supervisor.pid, signal.SIGINT)
        time.sleep(0.5)
        assert all(runs(pid) for pid in pids)
        supervisor.kill()
    deadline = time.monotonic() + 8
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < deadline, "they outlived their supervisor"
        time.sleep(0.05)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended and that nobody has waited for is no longer running either.
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return not shown.stdout.strip().startswith("Z")


def test_the_store_keeps_objects_over_a_stop(store: EmbeddedStore) -> None:
    objects_of(store).put_bytes("test/a", b"b", "text/plain")
    endpoint = store.endpoint
    started = time.monotonic()
    store.stop()
    assert time.monotonic() - started < 5
    store.start()
    assert store.endpoint == endpoint
    assert read(objects_of(store), "test/a") == b"b"


def test_the_store_keeps_objects_when_it_is_killed_and_is_ready_when_it_says_so(
    store: EmbeddedStore,
) -> None:
    written = {}
    for number in range(3):
        key, data = f"test/{number}", os.urandom(3_000_000)
        objects_of(store).put_bytes(key, data, "audio/wav")
        written[key] = data
        kill(store.child)
        store.start()
        objects = objects_of(store)
        assert {key: read(objects, key) for key in written} == written
        objects.put_bytes("test/x", b"x", "text/plain")


def test_the_store_refuses_wrong_keys_and_none(store: EmbeddedStore) -> None:
    objects_of(store).put_bytes("test/a", b"b", "text/plain")
    for wrong in ({"s3_secret_key": "x" * 48}, {"s3_access_key": "x" * 48}):
        for call in (
            objects_of(store, **wrong).ping,
            lambda wrong=wrong: objects_of(store, **wrong).open("test/a"),
        ):
            with pytest.raises(StagewaveError):
                call()
    assert httpx.get(f"{store.endpoint}/{BUCKET}/test/a").status_code == 403
    assert httpx.put(f"{store.endpoint}/{BUCKET}/test/a", content=b"c").status_code == 403
    assert httpx.get(f"{store.endpoint}/").status_code == 403


def test_the_store_shows_its_keys_to_nobody_else(store: EmbeddedStore) -> None:
    shown = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(store.child.pid)], capture_output=True, text=True
    )
    for name in ("access_key", "secret_key", "inner_key"):
        secret = (store.folder / name).read_text()
        assert secret not in shown.stdout
        for path in store.folder.iterdir():
            if path.is_file() and secret in path.read_text(errors="replace"):
                assert path.stat().st_mode & 0o077 == 0, path.name
    assert store.folder.stat().st_mode & 0o077 == 0


def test_the_store_takes_nothing_from_the_environment(
    tmp_path: Path, will: Will, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "theirs")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "theirs-too")
    monkeypatch.setenv("S3_BUCKET", "their-bucket")
    store = EmbeddedStore(tmp_path / "store", BUCKET)
    with named(will, store):
        theirs = objects_of(store, s3_access_key="theirs", s3_secret_key="theirs-too")
        with pytest.raises(StagewaveError):
            theirs.ping()
        objects_of(store).ping()


@needs_proc
def test_the_store_listens_on_loopback_alone_and_its_inner_ports_give_nothing_away(
    store: EmbeddedStore,
) -> None:
    objects_of(store).put_bytes("test/a", b"secret bytes", "text/plain")
    sockets = listening(store.child.pid or 0)
    assert {address for address, _ in sockets} == {LOOPBACK_IN_TABLE}
    assert len(sockets) == 10
    paths = ("/", f"/buckets/{BUCKET}/test/a", f"/{BUCKET}/test/a", "/1,01", "/dir/assign")
    asked = [
        (port, path, method)
        for _, port in sockets
        for path in paths
        for method in ("GET", "POST", "DELETE")
    ]
    with httpx.Client(timeout=5) as client:
        for port, path, method in asked:
            try:
                answer = client.request(method, f"http://127.0.0.1:{port}{path}")
            except httpx.TransportError:
                continue  # gRPC
            assert b"secret bytes" not in answer.content
            # The master's page of its own state is all there is.
            assert answer.status_code >= 400 or path == "/", (method, path, answer.text)
    assert read(objects_of(store), "test/a") == b"secret bytes"


def test_a_second_store_in_the_folder_is_refused_and_harms_nothing(store: EmbeddedStore) -> None:
    objects_of(store).put_bytes("test/a", b"b", "text/plain")
    with pytest.raises(EmbeddedServiceError, match="another process"):
        EmbeddedStore(store.folder, BUCKET).start()
    assert read(objects_of(store), "test/a") == b"b"


def test_the_store_moves_when_somebody_has_taken_one_of_its_ports(store: EmbeddedStore) -> None:
    objects_of(store).put_bytes("test/a", b"b", "text/plain")
    ports = [int(word) for word in (store.folder / "ports").read_text().split()]
    for port in (ports[1] + 10_000, ports[0]):
        store.stop()
        with socket.create_server(("127.0.0.1", port)):
            store.start()
            assert str(port) not in store.endpoint
            assert read(objects_of(store), "test/a") == b"b"


def test_the_store_takes_little_room_and_leaves_nothing_behind(store: EmbeddedStore) -> None:
    used = sum(path.stat().st_blocks * 512 for path in store.folder.rglob("*") if path.is_file())
    assert used < 2_000_000
    ports = [int(word) for word in (store.folder / "ports").read_text().split()]
    kill(store.child)
    store.stop()
    left = [path.name for path in Path("/tmp").glob("seaweedfs-*.sock")]
    assert not [name for name in left for port in ports if str(port) in name or str(port + 10_000) in name]


def test_a_store_is_ended_for_a_disk_that_was_full_now_and_not_in_an_earlier_run(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    full = b"write data/filerldb2/02/000001.log: no space left on device\n"
    (folder / "store.log").write_bytes(full)
    with EmbeddedStore(folder, BUCKET) as store:
        store.mend()
        time.sleep(0.5)
        assert store.child.exit_code() is None
        with (folder / "store.log").open("ab") as log:
            log.write(full)
        store.mend()
        deadline = time.monotonic() + 10
        while store.child.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert store.child.exit_code() is not None
