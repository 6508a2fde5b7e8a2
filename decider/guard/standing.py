"""What stands behind the decisions about a tool at this moment: its profile, if that can be relied on, and the bounds.

The file is read at every check. A profile that was deleted, replaced, damaged or has grown old counts at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from decider.guard.bounds import Coverage, GateBound, SetBound, fit_gate, fit_sets, upper_rate
from decider.guard.errors import ProfileError
from decider.guard.monitor import check_gate
from decider.guard.profile import Fingerprints, Profile, parse_profile, read_bytes
from decider.guard.rules import ToolRule


@dataclass(slots=True)
class Standing:
    """A profile in force, and the bounds fitted to it so far."""

    rule: ToolRule
    profile: Profile
    _bounds: dict[tuple[str | None, float], GateBound | SetBound] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The version of the profile."""
        return self.profile.version

    def bound(self, group: str | None, tau_act: float) -> GateBound | SetBound:
        """Return the bound for a group; raises ProfileError for one that no example belongs to."""
        if group is None and self.profile.groups:
            raise ProfileError("groups", "the examples have groups and the rule names none", "Write its `group`.")
        if group is not None and group not in self.profile.groups:
            raise ProfileError("unseen_group", f"no example belongs to the group {group!r}", "Calibrate with some.")
        key = (group, tau_act)
        if key not in self._bounds:
            self._bounds[key] = self._fit(group, tau_act)
        return self._bounds[key]

    def loss_bound(self) -> float:
        """Return what a drift monitor compares with: the 95 % upper bound of the calibrated loss rate."""
        groups: list[str | None] = [*sorted(self.profile.groups)] or [None]
        return upper_rate([self.bound(group, self.rule.thresholds[1]) for group in groups])

    def _fit(self, group: str | None, tau_act: float) -> GateBound | SetBound:
        rule, examples = self.rule, self.profile.of_group(group)
        if isinstance(rule.guarantee, Coverage):
            return fit_sets(examples, self.profile.options, rule.guarantee, rule.probability)
        return fit_gate(examples, rule.guarantee, rule.probability, tau_act, self.profile.unlabelled)


class Standings:
    """Reads profiles and remembers what was computed from them, for as long as their bytes stay the same."""

    def __init__(self, rules: Iterable[ToolRule]) -> None:
        self._fixed: dict[str, Fingerprints] = {rule.tool: rule.fixed_fingerprints() for rule in rules}
        self._read: dict[str, tuple[bytes, Standing]] = {}
        self._lock = threading.Lock()

    def of(self, rule: ToolRule, now: datetime) -> Standing:
        """Return what stands behind a rule; raises ProfileError where it cannot be relied on."""
        content = read_bytes(rule.profile, "profile")
        with self._lock:
            seen = self._read.get(rule.tool)
            if seen is None or seen[0] != content:
                seen = content, Standing(rule, parse_profile(content, rule.profile))
                self._read[rule.tool] = seen
        standing = seen[1]
        self._check(standing.profile, rule)
        standing.profile.check_age(now.astimezone(UTC).date())
        if rule.monitor is not None:
            check_gate(rule.monitor, standing.version)
        return standing

    def _check(self, profile: Profile, rule: ToolRule) -> None:
        remedy = "Calibrate with what is used now."
        if profile.tool != rule.tool or profile.options != rule.options:
            raise ProfileError("other_tool", f"the profile is about {profile.tool!r} and its options", remedy)
        now = msgspec.structs.replace(self._fixed[rule.tool], model=rule.model_fingerprint())
        if changed := profile.fingerprints.differences(now):
            raise ProfileError("fingerprint", f"changed since calibration: {', '.join(changed)}", remedy)
