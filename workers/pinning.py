"""Which GPUs a process may see: decided before anything in it touches CUDA, which looks only once."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stage_pipeline.deploy import DeployError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"


def pin(devices: str, environ: MutableMapping[str, str]) -> None:
    """Leave only ``devices`` visible. Where some are hidden already, as a cluster does that gives away only
    a part of a machine, numbers count those that can be seen. Raises ``DeployError``."""
    wanted = devices.split(",")
    if (given := environ.get(VISIBLE)) is not None:
        visible = [device.strip() for device in given.split(",") if device.strip()]
        wanted = [_among(visible, device) for device in wanted]
    else:
        # As nvidia-smi numbers them; CUDA alone would begin with the fastest.
        environ.setdefault(_ORDER, "PCI_BUS_ID")
    environ[VISIBLE] = ",".join(wanted)


@contextmanager
def turn_on(devices: str | None, folder: Path) -> Iterator[None]:
    """While in here nobody else with the same ``folder`` is, for any of these GPUs: an engine measures what
    memory is left while it starts, and another one that starts meanwhile would falsify that."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        for device in sorted(devices.split(",") if devices else ()):
            file = held.enter_context((folder / f"gpu-{device.replace('/', '-')}.lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _among(visible: list[str], device: str) -> str:
    if not device.isdecimal():
        return device
    if int(device) >= len(visible):
        raise DeployError(
            f"devices: there is no GPU {device}: {VISIBLE} leaves {len(visible)}, counted from 0"
        )
    return visible[int(device)]
