"""Errors of the guard: a setting that cannot be used, a profile that cannot be, an approval that releases nothing.

`Guard.check` raises none of them about a call: whatever is wrong there becomes a reason of its decision.
"""

from __future__ import annotations

from decider.errors import DeciderError


class GuardError(DeciderError):
    """The base of the guard's errors; `code` is one word for programs."""

    def __init__(self, code: str, problem: str, remedy: str) -> None:
        self.code = code
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}. {remedy}")


class GuardSettingError(GuardError):
    """A guard that was put together in a way that could not be relied on."""


class EvidenceError(GuardError):
    """Evidence that is no probability, or no distribution over the options."""


class ProfileError(GuardError):
    """A calibration profile, or its drift monitor, that is missing, damaged, stale or of something else."""


class ApprovalError(GuardError):
    """An approval, or an answer of a person, that does not release the call."""
