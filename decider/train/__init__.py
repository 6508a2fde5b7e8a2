"""Trains and measures a decision model: `python -m decider.train` and `python -m decider.train.evaluate`.

Only training needs PyTorch, safetensors and onnx; measuring needs what answering needs.
"""

import os

# Read when PyTorch starts its threads. By default they wait for each other by spinning, which on cores shared with
# other programs was measured to cost ten times the CPU time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
