"""Calibration and what can be said about it: fits, measures, intervals and certified thresholds, on plain arrays."""

from decider.calibration.binomial import (
    Level,
    binomial_tail,
    clopper_pearson_interval,
    exact_level,
    fewest_trials,
    tail_is_within,
    upper_bound,
    wilson_interval,
)
from decider.calibration.certify import Certificate, Step, certified_threshold
from decider.calibration.platt import PlattFit, fit_platt
from decider.calibration.scores import (
    BINS,
    Accuracy,
    Bin,
    RiskCoverage,
    accuracy,
    choice_brier,
    expected_calibration_error,
    negative_log_likelihood,
    noul_brier,
    reliability,
    risk_coverage,
)
from decider.calibration.temperature import (
    HIGHEST_TEMPERATURE,
    LOWEST_TEMPERATURE,
    TemperatureFit,
    fit_choice_temperature,
    fit_noul_temperature,
)
from decider.calibration.venn_abers import VennAbers, fit_venn_abers

__all__ = [
    "BINS",
    "HIGHEST_TEMPERATURE",
    "LOWEST_TEMPERATURE",
    "Accuracy",
    "Bin",
    "Certificate",
    "Level",
    "PlattFit",
    "RiskCoverage",
    "Step",
    "TemperatureFit",
    "VennAbers",
    "accuracy",
    "binomial_tail",
    "certified_threshold",
    "choice_brier",
    "clopper_pearson_interval",
    "exact_level",
    "expected_calibration_error",
    "fewest_trials",
    "fit_choice_temperature",
    "fit_noul_temperature",
    "fit_platt",
    "fit_venn_abers",
    "negative_log_likelihood",
    "noul_brier",
    "reliability",
    "risk_coverage",
    "tail_is_within",
    "upper_bound",
    "wilson_interval",
]
