"""Processes that begin as copies of this one, so that they need not import anything first."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Final

FORK: Final = multiprocessing.get_context("fork")


def started(work: Callable[..., int], *arguments: object) -> BaseProcess:
    """A process that does the work; its exit code is what the work returns, 1 after an exception."""
    process = FORK.Process(target=_exit, args=(work, *arguments))
    process.start()
    return process


def _exit(work: Callable[..., int], *arguments: object) -> None:
    raise SystemExit(work(*arguments))
