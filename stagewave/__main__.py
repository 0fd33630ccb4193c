"""``python -m stagewave``: the command where its script is not installed."""

from stagewave.cli import main

main()
