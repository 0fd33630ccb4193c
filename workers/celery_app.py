"""The Celery app: pools, workers and bells. It carries no job and keeps no result (see ``bell.py``)."""

from __future__ import annotations

from celery import Celery

from workers import keys
from workers.settings import Settings

WORK = "stagewave.work"


def make_celery(settings: Settings) -> Celery:
    """An app on the broker of ``settings``."""
    settings.require("redis_url")
    app = Celery("stagewave", broker=settings.redis_url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        # With late acks and a multiplier of 1 a worker holds only as many bells as it has threads, so
        # none lies in a busy worker while another one is idle. A bell that comes twice is harmless.
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_create_missing_queues=True,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # A broker that refuses for a while, its disk being full say, is no reason to end.
        broker_channel_error_retry=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_pool_limit=None,
        broker_transport_options={
            "global_keyprefix": keys.CELERY_PREFIX,
            "visibility_timeout": 24 * 3600,
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
    )
    return app
