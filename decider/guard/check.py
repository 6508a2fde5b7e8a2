"""The guard: decides whether a call that a model asks for runs, waits for a person, or does not run.

In this order: tool policy, hard rules, look-up of an earlier decision, evidence, profile, calibrated bound, costs,
audit. Whatever is unknown, missing, stale, changed or failing is a reason to decide against acting.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import msgspec

from decider.calibration.binomial import exact_level
from decider.costs import check_pair, is_number
from decider.guard.approvals import Approval, Release, redeem
from decider.guard.bounds import GateBound
from decider.guard.errors import ApprovalError, GuardError, GuardSettingError, ProfileError
from decider.guard.evidence import checked_probabilities, checked_score
from decider.guard.fingerprint import hash_call
from decider.guard.records import Action, Call, Decision
from decider.guard.rules import BrokenRuleError, Refusal, ToolRule, rules_by_tool
from decider.guard.standing import Standing, Standings
from decider.guard.verdict import Draft, through_gate, through_set

_RANDOM: Final = secrets.SystemRandom()


def utc_now() -> datetime:
    """Return the time, with its zone."""
    return datetime.now(UTC)


class Guard:
    """Decides on calls by the rules for their tools. Threads may share one.

    `free` names the tools that need no guard; a tool that is neither there nor has a rule gets `unlisted`, and what
    fails gets `on_failure`. `clock` returns times with a zone; `random` a number in [0, 1) that nobody can foresee.
    `remembered` is how many decisions are kept for calls that are tried again.
    """

    def __init__(
        self,
        rules: Sequence[ToolRule],
        *,
        free: Collection[str] = (),
        unlisted: Refusal = "block",
        on_failure: Refusal = "escalate",
        clock: Callable[[], datetime] = utc_now,
        random: Callable[[], float] = _RANDOM.random,
        remembered: int = 1024,
    ) -> None:
        self.rules = rules_by_tool(rules)
        self.free = frozenset(free)
        if both := self.free & self.rules.keys():
            raise GuardSettingError("two_rules", f"{', '.join(sorted(both))}: free, and with a rule", "Decide for one.")
        self.unlisted: Refusal = unlisted
        self.on_failure: Refusal = on_failure
        self._clock, self._random = clock, random
        self._latest = datetime.min.replace(tzinfo=UTC)
        self._standings = Standings(rules)
        self._made: OrderedDict[tuple[object, ...], Decision] = OrderedDict()
        self._remembered, self._lock = remembered, threading.Lock()

    def check(
        self, call: Call, *, earlier: Iterable[Decision] = (), thresholds: tuple[float, float] | None = None
    ) -> Decision:
        """Decide on a call; raises nothing for what is wrong with it, or with what judges it.

        `earlier` are decisions of the same conversation, so that a retry gets the same decision after a restart as
        well. `thresholds` are (tau_esc, tau_act) to use instead of those of the rule's costs.
        """
        draft = Draft()
        try:
            draft.decided = self.now()
            return self._decided(call, draft, earlier, thresholds)
        except BrokenRuleError as error:
            action: Action = draft.because(error.verdict, error.code, error.problem)
        except GuardError as error:
            action = draft.because(self.on_failure, error.code, str(error))
        except Exception as error:
            action = draft.because(self.on_failure, "failure", f"{type(error).__name__}: {error}"[:300])
        return _finished(call, draft, action)

    def release(
        self, call: Call, decision: Decision, approval: Approval | None = None, redeemed: Collection[str] = ()
    ) -> Release:
        """Say, at the moment a call runs, that it may; raises GuardError (ApprovalError, BrokenRuleError) otherwise.

        The exact arguments have to be those decided on, and hard rules apply again. A decision to act also needs the
        profile that it was made with to be in force; any other needs a person's approval whose id is not among those
        `redeemed` before. Save the approval's id together with the fact that the call runs.
        """
        now, rule = self.now(), self.rules.get(call.tool)
        if rule is None and call.tool not in self.free:
            raise ApprovalError("unlisted_tool", f"no rule is about the tool {call.tool!r}", "Write one.")
        if decision.action == "block":
            raise ApprovalError("blocked", f"call {decision.call_id!r} was blocked", "No approval releases it.")
        if rule is not None:
            rule.check_hard_rules(call)
        if approval is not None:
            return redeem(approval, call, decision, now=now, redeemed=redeemed)
        if decision.action != "act":
            raise ApprovalError("not_approved", f"call {decision.call_id!r} waits for a person", "Ask one.")
        given = (call.thread, call.tool, hash_call(call.tool, call.arguments))
        if given != (decision.thread, decision.tool, decision.arguments_hash):
            raise ApprovalError("other_arguments", "the call is not the one that was decided on", "Check it anew.")
        if decision.decided is None or now < decision.decided:
            raise ApprovalError("clock", f"it is {now}, before the decision", "Check the clock of this machine.")
        if rule is not None and self._standings.of(rule, now).version != decision.profile_version:
            raise ApprovalError("other_profile", "the decision was made with another profile", "Check it anew.")
        return Release(call.id, decision.id, given[2], None, "guard")

    def standing(self, tool: str) -> Standing:
        """Return what stands behind a tool's decisions now; raises ProfileError where that cannot be relied on."""
        return self._standings.of(self.rules[tool], self.now())

    def now(self) -> datetime:
        """Return the clock's time; raises GuardError when it has no zone or went backwards."""
        with self._lock:  # one reading at a time: threads that share a guard must not see each other's as going back
            time: object = self._clock()
            if not isinstance(time, datetime) or time.tzinfo is None:
                raise GuardError("clock", f"the clock gives {time!r}", "Give a time with a zone.")
            if time < self._latest:
                raise GuardError("clock", f"it is {time} after {self._latest}", "Check the clock of this machine.")
            self._latest = time
        return time

    def _decided(
        self, call: Call, draft: Draft, earlier: Iterable[Decision], thresholds: tuple[float, float] | None
    ) -> Decision:
        draft.arguments_hash = hash_call(call.tool, call.arguments)
        rule = self.rules.get(call.tool)
        if rule is None:
            return _finished(call, draft, self._by_tool_policy(call, draft))
        rule.check_hard_rules(call)
        draft.tau_esc, draft.tau_act = rule.thresholds if thresholds is None else thresholds
        check_pair(draft.tau_esc, draft.tau_act)
        context = rule.context(call)
        draft.context_hash = hash_call("context", context)
        draft.group = None if rule.group is None else rule.group(call)
        standing, problem = self._standing_or_problem(rule, draft)
        if standing is not None:
            draft.profile_version = standing.version
            for known in (self._made.get(draft.key(call.tool)), *earlier):
                if known is not None and draft.is_repeated_by(known, call.tool):
                    return msgspec.structs.replace(known, call_id=call.id, thread=call.thread, repeat=True)
        evidence = rule.scorer(context)
        if rule.options:
            draft.score = dict(zip(rule.options, checked_probabilities(evidence, rule.options), strict=True))
        else:
            draft.score = checked_score(evidence)
        if standing is None:
            raise problem
        bound = standing.bound(draft.group, draft.tau_act)
        draft.guarantee = bound.text
        action = through_gate(bound, draft) if isinstance(bound, GateBound) else through_set(bound, rule, call, draft)
        self._draw_audit(rule, draft)
        return self._remember(draft.key(call.tool), _finished(call, draft, action))

    def _by_tool_policy(self, call: Call, draft: Draft) -> Action:
        if call.tool in self.free:
            return draft.because("act", "free_tool", f"{call.tool} needs no guard.")
        return draft.because(self.unlisted, "unlisted_tool", f"no rule is about the tool {call.tool!r}.")

    def _standing_or_problem(self, rule: ToolRule, draft: Draft) -> tuple[Standing | None, GuardError]:
        """Look at the profile before the look-up needs its version; what is wrong with it is said in its turn."""
        problem = GuardError("profile", "nothing stands behind this rule", "Calibrate first.")
        assert draft.decided is not None
        try:
            return self._standings.of(rule, draft.decided), problem
        except ProfileError as error:
            return None, error

    def _draw_audit(self, rule: ToolRule, draft: Draft) -> None:
        """Draw whether a call is audited, whatever was decided: then the audited calls are a random sample of all."""
        if rule.audit_share is None:
            return
        share, drawn = exact_level(rule.audit_share, "audit_share"), self._random()
        if not is_number(drawn) or not 0 <= drawn < 1:
            raise GuardError("random", f"the random number is {drawn!r}", "Give one in [0, 1).")
        draft.audited, draft.audit_weight = drawn < share, float(1 / share)

    def _remember(self, key: tuple[object, ...], decision: Decision) -> Decision:
        """Keep the first decision about a call, should two threads have made one."""
        with self._lock:
            kept = self._made.setdefault(key, decision)
            while len(self._made) > self._remembered:
                self._made.popitem(last=False)
        same = kept is decision
        return decision if same else msgspec.structs.replace(kept, call_id=decision.call_id, thread=decision.thread)


def _finished(call: Call, draft: Draft, action: Action) -> Decision:
    return Decision(
        id=uuid4().hex,
        call_id=call.id,
        thread=call.thread,
        tool=call.tool,
        action=action,
        reasons=tuple(draft.reasons),
        decided=draft.decided,
        arguments_hash=draft.arguments_hash,
        context_hash=draft.context_hash,
        profile_version=draft.profile_version,
        group=draft.group,
        p=draft.p,
        score=draft.score,
        labels=draft.labels,
        tau_esc=draft.tau_esc,
        tau_act=draft.tau_act,
        threshold=draft.threshold,
        guarantee=draft.guarantee,
        audited=draft.audited,
        audit_weight=draft.audit_weight,
    )
