"""A calibration profile: labelled examples with everything that they depend on, in one JSON file.

Thresholds are computed from the examples, so levels and costs may change without asking the model again. The file
carries a hash of its contents, which is the profile's version: a file that was changed by hand is damaged.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from decider.guard.errors import EvidenceError, ProfileError
from decider.guard.evidence import checked_probabilities, checked_score

FORMAT: Final = 1


class Fingerprints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a calibration depends on, a hash each (see decider.guard.fingerprint)."""

    model: str
    question: str
    options: str
    context_builder: str
    policy: str
    tool_schema: str
    scorer: str
    label_protocol: str

    def differences(self, other: Fingerprints) -> tuple[str, ...]:
        """Return the names of what is not the same."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) != getattr(other, name))


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One labelled call.

    `evidence` is what the scorer gave: a probability, and `label` says whether the proposed call was right; or one for
    each option, and `label` is the right option. `run_id` is the conversation it comes from, `created` the day of the
    call and `labelled` that of the label. `group` is computed from the records before the label is known.
    """

    id: str
    run_id: str
    evidence: float | dict[str, float]
    label: bool | str
    created: date
    labelled: date
    group: str | None = None


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Labelled examples of one tool's calls. `options` is empty where calls are right or wrong.

    `calibrated` is the day it was made, `max_age_days` how old its oldest example may be. `unlabelled` are recent
    scores, which fix the thresholds that are tried for a selective bound. `version` is the hash of all the rest; make
    profiles with `make_profile`.
    """

    tool: str
    options: tuple[str, ...]
    fingerprints: Fingerprints
    calibrated: date
    max_age_days: int
    examples: tuple[Example, ...]
    unlabelled: tuple[float, ...] = ()
    format: int = FORMAT
    version: str = ""

    def computed_version(self) -> str:
        """Return the SHA-256 (hex) of everything but the version."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, version=""))).hexdigest()

    def of_group(self, group: str | None) -> tuple[Example, ...]:
        """Return the examples of one group; of None, all."""
        return self.examples if group is None else tuple(one for one in self.examples if one.group == group)

    @property
    def groups(self) -> frozenset[str]:
        """The groups that examples belong to; none where no groups were made."""
        return frozenset(one.group for one in self.examples if one.group is not None)

    def check_age(self, today: date) -> None:
        """Raise ProfileError when the oldest example is too old, or the profile was made after today."""
        latest = max((self.calibrated, *(max(one.created, one.labelled) for one in self.examples)))
        if today < latest:
            raise ProfileError(
                "clock", f"today is {today} and the profile knows of {latest}", "Check the clock of this machine."
            )
        age = (today - min(one.created for one in self.examples)).days
        if age > self.max_age_days:
            raise ProfileError(
                "stale",
                f"the oldest example is {age} days old and {self.max_age_days} are allowed",
                "Calibrate on recent calls.",
            )


def make_profile(
    tool: str,
    fingerprints: Fingerprints,
    examples: Iterable[Example],
    *,
    calibrated: date,
    max_age_days: int,
    options: Iterable[str] = (),
    unlabelled: Iterable[float] = (),
) -> Profile:
    """Return a checked profile with its version; raises ProfileError for examples that no bound can rest on."""
    made = Profile(tool, tuple(options), fingerprints, calibrated, max_age_days, tuple(examples), tuple(unlabelled))
    _check(made)
    stored = msgspec.json.decode(msgspec.json.encode(made), type=Profile)  # so that 1 is 1.0, as it will be read
    return msgspec.structs.replace(stored, version=stored.computed_version())


def one_of_each_run(examples: Iterable[Example], seed: int) -> tuple[Example, ...]:
    """Return one example of each run, drawn at random: several calls of one conversation are not independent."""
    runs: dict[str, list[Example]] = {}
    for one in examples:
        runs.setdefault(one.run_id, []).append(one)
    random = Random(seed)
    return tuple(random.choice(calls) for calls in runs.values())


def write_profile(path: Path, profile: Profile) -> None:
    """Write the file whole or not at all, readable by its owner alone."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n")


def read_profile(path: Path) -> Profile:
    """Read and check a profile; raises ProfileError with the code "missing", "damaged" or "format"."""
    return parse_profile(read_bytes(path, "profile"), path)


def parse_profile(content: bytes, path: Path) -> Profile:
    """Return the profile in the bytes of a file; raises ProfileError."""
    remedy = "Write the profile again from its examples."
    try:
        head = msgspec.json.decode(content, type=dict[str, object])
        if head.get("format") != FORMAT:
            raise ProfileError("format", f"{path} has format {head.get('format')!r}, not {FORMAT}", remedy)
        profile = msgspec.json.decode(content, type=Profile)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProfileError("damaged", f"{path} cannot be read: {error}", remedy) from error
    if profile.version != profile.computed_version():
        raise ProfileError("damaged", f"{path} was changed: its contents are not what its version says", remedy)
    _check(profile)
    return profile


def read_bytes(path: Path, what: str) -> bytes:
    """Return the bytes of a file; raises ProfileError "missing" or "damaged"."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ProfileError("missing", f"there is no {what} at {path}", "Calibrate first.") from None
    except OSError as error:
        raise ProfileError("damaged", f"{path} cannot be read: {error}", "Make it readable.") from error


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file by new contents at once: a reader finds the old ones or the new ones, also after a crash."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check(profile: Profile) -> None:
    if not profile.examples:
        raise ProfileError("examples", "the profile has no examples", "Label some calls.")
    if profile.max_age_days < 0:
        raise ProfileError("examples", f"max_age_days is {profile.max_age_days}", "Write 0 or more.")
    if len(profile.options) == 1 or len(set(profile.options)) != len(profile.options):
        raise ProfileError("examples", f"the options are {profile.options!r}", "Write none, or two or more.")
    for field in ("id", "run_id"):
        values = [getattr(one, field) for one in profile.examples]
        if len(set(values)) != len(values):
            raise ProfileError("examples", f"two examples have the same {field}", "Take one with one_of_each_run.")
    grouped = [one.group is not None for one in profile.examples]
    if any(grouped) and not all(grouped):
        raise ProfileError("examples", "some examples have a group and some none", "Give all of them one, or none.")
    for one in profile.examples:
        _check_example(one, profile.options)
    for score in profile.unlabelled:
        try:
            checked_score(score)
        except EvidenceError as error:
            raise ProfileError("examples", f"an unlabelled score: {error.problem}", error.remedy) from error


def _check_example(one: Example, options: tuple[str, ...]) -> None:
    try:
        if options:
            checked_probabilities(one.evidence, options)
        else:
            checked_score(one.evidence)
    except EvidenceError as error:
        raise ProfileError("examples", f"example {one.id!r}: {error.problem}", error.remedy) from error
    if one.label not in options if options else not isinstance(one.label, bool):
        allowed = f"one of {', '.join(options)}" if options else "true or false"
        raise ProfileError("examples", f"example {one.id!r} has the label {one.label!r}", f"Write {allowed}.")
    if one.labelled < one.created:
        raise ProfileError("examples", f"example {one.id!r} was labelled before its call", "Correct the dates.")
