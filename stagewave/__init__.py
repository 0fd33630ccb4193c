"""Stagewave's command and Python client."""

from stagewave.client import Client
from stagewave.errors import ApiError, ClientError, NotFound, Unreachable
from stagewave.record import Event, Job

__all__ = ["ApiError", "Client", "ClientError", "Event", "Job", "NotFound", "Unreachable"]
