"""Runs `python -m decider.report`."""

import sys

from decider.report.command import main

if __name__ == "__main__":
    sys.exit(main())
