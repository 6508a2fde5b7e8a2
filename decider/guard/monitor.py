"""Watches the labels of audited calls and closes the gate when more of them are wrong than calibration can explain.

A betting e-process: one unit is spread over eight bets that the loss rate is above the bound; while it is not, the
wealth reaches 1/a with a probability of at most a, at whatever time one looks. The bound is the 95 % upper bound of the
calibrated rate, not the target: against the target itself one calibration in five alarms without any drift.

The state is a file. It belongs to one version of a profile, an alarm stays, and only a new calibration starts anew; a
file that is missing or damaged leaves the gate closed.

Sources: Ville 1939; Waudby-Smith and Ramdas, arXiv:2010.09686; Podkopaev and Ramdas 2022, arXiv:2110.06177.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from decider.calibration.binomial import Level, exact_level
from decider.guard.errors import ProfileError
from decider.guard.profile import read_bytes, write_whole

BETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""The shares of the wealth that are bet, over the bound; the largest is below 1, so it is never lost whole."""


class Monitor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a monitor: a bound on the loss rate, the risk of a false alarm, and the logarithms of the wealth.

    `alarmed` stays true once the wealth has reached 1 / `risk`.
    """

    profile_version: str
    bound: float
    risk: float
    wealth: tuple[float, ...] = (0.0,) * len(BETS)
    observed: int = 0
    losses: int = 0
    alarmed: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.bound < 1 and 0 < self.risk < 1 and len(self.wealth) == len(BETS)):
            raise ValueError(f"bound {self.bound:g}, risk {self.risk:g}: both lie between 0 and 1, with eight bets")
        if not all(map(math.isfinite, self.wealth)) or not 0 <= self.losses <= self.observed:
            raise ValueError("the wealth or the counts of a monitor cannot be")

    @property
    def e_value(self) -> float:
        """The wealth: how much the labels speak against "the rate is at most the bound"."""
        highest = max(self.wealth)
        return math.exp(highest) * math.fsum(math.exp(one - highest) for one in self.wealth) / len(BETS)

    def after(self, losses: Iterable[bool]) -> Monitor:
        """Return the monitor after more labels, in their order, each whether the call was a loss."""
        monitor = self
        for loss in losses:
            monitor = monitor._after_one(loss)
        return monitor

    def _after_one(self, loss: bool) -> Monitor:
        if not isinstance(loss, bool):
            raise ValueError(f"a label is {loss!r}: write whether the call was a loss, True or False")
        steps = [math.log1p(share / self.bound * (loss - self.bound)) for share in BETS]
        moved = msgspec.structs.replace(
            self,
            wealth=tuple(old + step for old, step in zip(self.wealth, steps, strict=True)),
            observed=self.observed + 1,
            losses=self.losses + loss,
        )
        return msgspec.structs.replace(moved, alarmed=self.alarmed or moved.e_value >= 1 / self.risk)


def start_monitor(path: Path, profile_version: str, bound: float, risk: Level = "0.05") -> Monitor:
    """Begin to watch a newly calibrated profile, whatever the file held.

    Raises ProfileError "monitored" when the file already watches this very profile: an alarm is not reset that way.
    """
    with _alone(path):
        if path.exists() and _parse(read_bytes(path, "monitor"), path).profile_version == profile_version:
            raise ProfileError("monitored", f"{path} already watches this profile", "Calibrate again to start anew.")
        monitor = Monitor(profile_version, bound, float(exact_level(risk, "risk")))
        _write(path, monitor)
    return monitor


def observe(path: Path, profile_version: str, losses: Sequence[bool]) -> Monitor:
    """Add labels of a random sample of calls; raises ProfileError when the file is not about this profile."""
    with _alone(path):
        monitor = read_monitor(path, profile_version).after(losses)
        _write(path, monitor)
    return monitor


def read_monitor(path: Path, profile_version: str) -> Monitor:
    """Read a monitor; raises ProfileError "missing", "damaged", or "monitor" when it watches another profile."""
    monitor = _parse(read_bytes(path, "monitor"), path)
    if monitor.profile_version != profile_version:
        raise ProfileError("monitor", f"{path} watches another profile", "Start it for this one.")
    return monitor


def check_gate(path: Path, profile_version: str) -> None:
    """Raise ProfileError unless a monitor watches this profile and has not alarmed ("drift")."""
    monitor = read_monitor(path, profile_version)
    if monitor.alarmed:
        raise ProfileError(
            "drift",
            f"{monitor.losses} of {monitor.observed} audited calls were losses, more than {monitor.bound:.1%} explains",
            "The gate stays closed until a new calibration.",
        )


def _parse(content: bytes, path: Path) -> Monitor:
    try:
        return msgspec.json.decode(content, type=Monitor)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProfileError("damaged", f"{path} cannot be read: {error}", "Delete it and calibrate again.") from error


def _write(path: Path, monitor: Monitor) -> None:
    write_whole(path, msgspec.json.encode(monitor) + b"\n")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from writing the same file; they take the same lock."""
    import fcntl

    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
