"""``python -m anneal`` is ``anneal``."""

from anneal.cli import main

main()
