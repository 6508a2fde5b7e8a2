"""What a guard is told about one tool: how its calls are scored, what is promised, and what no score can overrule."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from decider.calibration.binomial import Level, exact_level
from decider.costs import Costs, CostWarning, action_thresholds
from decider.guard.bounds import Coverage, Guarantee, ProbabilityKind
from decider.guard.errors import GuardError, GuardSettingError
from decider.guard.fingerprint import fingerprint
from decider.guard.profile import Fingerprints
from decider.guard.records import Call

Refusal: TypeAlias = Literal["block", "escalate"]
"""What becomes of a call that may not run: nobody may release it, or a person may."""


@dataclass(frozen=True, slots=True)
class HardRule:
    """A rule in code: `broken` returns None where a call keeps it, else a sentence that says how it breaks it."""

    name: str
    broken: Callable[[Call], str | None]
    verdict: Refusal = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """How calls of one tool are judged.

    `context` makes what the scorer sees of a call, from the system of record, and has to be what the examples were
    scored on; it returns data that JSON can hold. `scorer` gives P(the call is right) for it, or with `options` one
    probability for each. `question`, `policy`, `tool_schema` and `label_protocol` are what the scorer and the labels
    were made with, as text or data; they are compared with the profile by their hashes, as `model` is (a function is
    called at every check). `group` names the group of a call, from the records.

    With options a call is done alone only when the prediction set is one label that is in `allow_labels` and equals
    the call's `match_argument`; a set within `block_labels` blocks it. `monitor` is the file of the drift monitor,
    `audit_share` the share of calls that are drawn for an audit.

    Warns about odd costs; raises GuardSettingError for a rule that contradicts itself.
    """

    tool: str
    profile: Path
    context: Callable[[Call], object]
    scorer: Callable[[object], object]
    guarantee: Guarantee
    costs: Costs
    model: str | Callable[[], str]
    question: object
    policy: object
    tool_schema: object
    label_protocol: object
    hard_rules: Sequence[HardRule] = ()
    group: Callable[[Call], str] | None = None
    options: tuple[str, ...] = ()
    allow_labels: frozenset[str] = frozenset()
    block_labels: frozenset[str] = frozenset()
    match_argument: str | None = None
    probability: ProbabilityKind = "venn-abers"
    monitor: Path | None = None
    audit_share: Level | None = None

    def __post_init__(self) -> None:
        for remark in self.costs.remarks():
            warnings.warn(f"{self.tool}: {remark}", CostWarning, stacklevel=3)
        if self.audit_share is not None:
            exact_level(self.audit_share, "audit_share")
        if bool(self.options) != isinstance(self.guarantee, Coverage):
            raise self._contradiction("options go with Coverage, and Joint or Selective without options")
        named = self.allow_labels | self.block_labels
        if not named <= set(self.options) or (self.match_argument is not None and not self.options):
            raise self._contradiction("allow_labels, block_labels and match_argument are about the options")
        if self.options and (not self.allow_labels or self.allow_labels & self.block_labels):
            raise self._contradiction("with options some labels allow, and none of them blocks")
        if len({rule.name for rule in self.hard_rules}) != len(self.hard_rules):
            raise self._contradiction("two hard rules have one name")

    def _contradiction(self, allowed: str) -> GuardSettingError:
        return GuardSettingError("rule", f"the rule for {self.tool!r} contradicts itself", f"Note: {allowed}.")

    @property
    def thresholds(self) -> tuple[float, float]:
        """tau_esc and tau_act of the costs."""
        return action_thresholds(self.costs, quiet=True)

    def fingerprints(self) -> Fingerprints:
        """Return the hashes of everything that the calibration depends on, for a new profile."""
        return msgspec.structs.replace(self.fixed_fingerprints(), model=self.model_fingerprint())

    def fixed_fingerprints(self) -> Fingerprints:
        """Return all hashes but the model's, which is left empty; they stay the same while the program runs."""
        return Fingerprints(
            model="",
            question=fingerprint(self.question),
            options=fingerprint(list(self.options)),
            context_builder=fingerprint([fingerprint(self.context), self.group and fingerprint(self.group)]),
            policy=fingerprint(self.policy),
            tool_schema=fingerprint(self.tool_schema),
            scorer=fingerprint(self.scorer),
            label_protocol=fingerprint(self.label_protocol),
        )

    def model_fingerprint(self) -> str:
        """Return the hash of the model that answers now."""
        return fingerprint(self.model() if callable(self.model) else self.model)

    def check_hard_rules(self, call: Call) -> None:
        """Raise BrokenRuleError for the first hard rule that a call breaks, or that cannot be applied."""
        for rule in self.hard_rules:
            try:
                found: object = rule.broken(call)
            except Exception as error:
                problem = f"hard rule {rule.name!r} failed: {type(error).__name__}: {error}"
                raise BrokenRuleError(rule.name, "escalate", problem) from error
            if found is None:
                continue
            if not isinstance(found, str) or not found:
                raise BrokenRuleError(rule.name, "escalate", f"hard rule {rule.name!r} gave {found!r}, no sentence")
            raise BrokenRuleError(rule.name, rule.verdict, f"{rule.name}: {found}")


class BrokenRuleError(GuardError):
    """A call that breaks a hard rule, named `rule`, or that one could not be applied to; `verdict` is what follows."""

    def __init__(self, rule: str, verdict: Refusal, problem: str) -> None:
        self.rule = rule
        self.verdict: Refusal = verdict
        super().__init__("hard_rule", problem, "No score and no approval overrules it.")


def rules_by_tool(rules: Sequence[ToolRule]) -> Mapping[str, ToolRule]:
    """Return the rules by their tools; raises GuardSettingError where two are about one tool."""
    found: dict[str, ToolRule] = {}
    for rule in rules:
        if rule.tool in found:
            raise GuardSettingError("two_rules", f"two rules are about the tool {rule.tool!r}", "Write one rule.")
        found[rule.tool] = rule
    return found
