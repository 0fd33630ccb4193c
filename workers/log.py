"""Logs: one JSON line an event, to standard error."""

from __future__ import annotations

import json
import logging
import sys
import time

_NOISY = ("celery", "kombu", "httpx", "httpcore", "botocore", "boto3", "urllib3", "s3transfer")
_PLAIN = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {"message", "taskName"}


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in _PLAIN}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def start_logging(level: str) -> None:
    """Called once at the start of a process; replaces whatever handlers stand."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLine())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Libraries that tell of every request or connection.
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
