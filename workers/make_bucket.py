"""Makes the bucket of the settings unless it is there: for an object store that begins empty."""

from __future__ import annotations

import os
import sys

from stage_pipeline.errors import StagewaveError
from workers.cannot_start import cannot_start
from workers.object_store import ObjectStore
from workers.settings import SettingsError, load_settings


def main() -> None:
    try:
        settings = load_settings(os.environ)
        settings.require("s3_endpoint")
    except SettingsError as error:
        cannot_start(error)
    try:
        ObjectStore(settings).ensure_bucket()
    except StagewaveError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()
