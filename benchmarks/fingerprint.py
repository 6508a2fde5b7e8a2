"""One hash over everything that random programs show and store, under several PYTHONHASHSEEDs: it must not differ.

python benchmarks/fingerprint.py --programs 3000 --hash-seeds 0 1 2
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import warnings
from random import Random

from minigraph.testing import draw_program, run


def fingerprint(programs: int) -> str:
    """The SHA-256 of the traces of the first programs."""
    digest = hashlib.sha256()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(programs):
            digest.update(repr(run(draw_program(Random(seed)))).encode())
    return digest.hexdigest()


def elsewhere(programs: int, hash_seed: str) -> str:
    """The same, worked out by a process with this PYTHONHASHSEED."""
    command = [sys.executable, __file__, "--programs", str(programs)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Runs the command; returns 1 if the fingerprints differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100, help="how many programs (default 100)")
    parser.add_argument("--hash-seeds", nargs="+", default=[], help="PYTHONHASHSEEDs to run under (default: this one)")
    options = parser.parse_args()
    if not options.hash_seeds:
        print(fingerprint(options.programs))
        return 0
    found = {hash_seed: elsewhere(options.programs, hash_seed) for hash_seed in options.hash_seeds}
    for hash_seed, digest in found.items():
        print(f"PYTHONHASHSEED={hash_seed} {options.programs} programs {digest}")
    return 0 if len(set(found.values())) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
