"""The calibrated guard: what a model asks for is a request, and this decides whether it becomes an action."""

from decider.guard.approvals import Approval, Rejection, Release, approve, redeem
from decider.guard.batch import approve_batch
from decider.guard.bounds import Coverage, Guarantee, Joint, ProbabilityKind, Selective
from decider.guard.check import Guard, utc_now
from decider.guard.errors import ApprovalError, EvidenceError, GuardError, GuardSettingError, ProfileError
from decider.guard.evidence import Evidence, checked_probabilities, checked_score
from decider.guard.fingerprint import fingerprint, hash_call, versioned
from decider.guard.levels import JointThreshold, joint_threshold, lowest_threshold, most_wrong
from decider.guard.monitor import Monitor, check_gate, observe, read_monitor, start_monitor
from decider.guard.profile import (
    Example,
    Fingerprints,
    Profile,
    make_profile,
    one_of_each_run,
    read_profile,
    write_profile,
)
from decider.guard.records import Action, Call, Decision, Reason, read_decision
from decider.guard.review import RefusedCall, read_review, refused, review_question, waiting
from decider.guard.rules import BrokenRuleError, HardRule, ToolRule
from decider.guard.sets import Method, SetRule, conformal_limit, conformal_rank, fit_set_rule, option_scores
from decider.guard.standing import Standing
from decider.guard.weighted import lowest_threshold_of_losses

__all__ = [
    "Action",
    "Approval",
    "ApprovalError",
    "BrokenRuleError",
    "Call",
    "Coverage",
    "Decision",
    "Evidence",
    "EvidenceError",
    "Example",
    "Fingerprints",
    "Guarantee",
    "Guard",
    "GuardError",
    "GuardSettingError",
    "HardRule",
    "Joint",
    "JointThreshold",
    "Method",
    "Monitor",
    "ProbabilityKind",
    "Profile",
    "ProfileError",
    "Reason",
    "RefusedCall",
    "Rejection",
    "Release",
    "Selective",
    "SetRule",
    "Standing",
    "ToolRule",
    "approve",
    "approve_batch",
    "check_gate",
    "checked_probabilities",
    "checked_score",
    "conformal_limit",
    "conformal_rank",
    "fingerprint",
    "fit_set_rule",
    "hash_call",
    "joint_threshold",
    "lowest_threshold",
    "lowest_threshold_of_losses",
    "make_profile",
    "most_wrong",
    "observe",
    "one_of_each_run",
    "option_scores",
    "read_decision",
    "read_monitor",
    "read_profile",
    "read_review",
    "redeem",
    "refused",
    "review_question",
    "start_monitor",
    "utc_now",
    "versioned",
    "waiting",
    "write_profile",
]
