"""The queue side: job records, channels, workers, webhooks, batches, the scheduler."""

import os

# Where setproctitle is installed, as beside vLLM, Celery would write a title of its own over the command
# line and the environment by which a process can be told from others. Celery looks here when imported.
os.environ.setdefault("NOSETPS", "1")
