"""What can go wrong with Stagewave for a client, and on this machine; each text is for a person."""

from __future__ import annotations

from stagewave import exits


class ClientError(Exception):
    """The root of what ``Client`` raises."""

    exit_code = exits.REFUSED


class Unreachable(ClientError):
    """No answer came: the server is not there, or the connection broke."""

    exit_code = exits.UNREACHABLE


class ApiError(ClientError):
    """The server answered with an error; ``code`` is the stable one of the API."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.status = status
        self.code = code
        self.field = field
        self.retry_after_s = retry_after_s


class NotFound(ApiError):
    """There is no such job, or it was deleted."""

    exit_code = exits.NOT_FOUND


class WebhookInvalid(Exception):
    """What came to a receiver of webhooks is none of Stagewave's, or is an old one sent again."""


class LocalError(Exception):
    """The root of what can go wrong on this machine, apart from any server."""

    exit_code = exits.FAILED


class WrongConfig(LocalError):
    """A deploy config that cannot be used."""

    exit_code = exits.USAGE


class ServiceAway(LocalError):
    """The broker or the object store of a system cannot be reached."""

    exit_code = exits.UNREACHABLE


class WrongInput(LocalError):
    """Files or lines that a batch cannot be made of."""

    exit_code = exits.USAGE


class StoreFailed(LocalError):
    """An object store that cannot be listed from here."""

    exit_code = exits.UNREACHABLE


class DiskFull(LocalError):
    """Nothing more can be written where outputs go."""


class StartFailed(LocalError):
    """Stagewave did not start."""


class HomeBusy(LocalError):
    """Another ``stagewave up`` runs in this home folder."""


class RecordingsMissing(LocalError):
    """The recordings of the demo could not be fetched."""
