"""``stagewave batch``: many files or lines through the queue, with a bounded window of jobs.

Everything here streams: a folder's names are the most that is held at a time. What is done is what has its
output, so nothing else needs to be remembered between two runs; what was under way when a run died is found
again by its idempotency key, which is made of content and options.
"""
