"""Lets ``python -m desk`` do what the command ``desk`` does."""

from desk.cli import main

main()
