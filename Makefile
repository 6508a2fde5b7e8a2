# Each verb sets up what it needs: Python 3.11 or newer is all there has to be.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: desk test check laws parity crash endurance fuzz bench conformance model figures report nightly wheel clean

desk: .venv/desk ; $(BIN)/desk demo

test: .venv/dev ; $(BIN)/pytest

check: .venv/dev ; $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/pyright

laws: .venv/dev ; $(BIN)/python benchmarks/laws.py --programs 1000 --jobs 2

parity: .venv/dev ; $(BIN)/python benchmarks/parity.py --programs 2000 --jobs 2

crash: .venv/dev ; $(BIN)/python benchmarks/crash.py --graphs 200 --desk --jobs 2

endurance: .venv/dev ; $(BIN)/python benchmarks/endurance.py --postgres own

bench: .venv/dev ; $(BIN)/python benchmarks/speed.py && $(BIN)/python benchmarks/desk_request.py --shipped && $(BIN)/python benchmarks/decider_cpu.py

conformance: .venv/dev ; $(BIN)/python benchmarks/conformance.py

fuzz: .venv/dev ; $(BIN)/python benchmarks/fuzz_codec.py --inputs 1000000 --jobs 2

nightly: fuzz ; $(BIN)/pytest -m "slow or not slow"

DECISIONS := runs/decisions
EXAMPLES := --train $(DECISIONS)/train.jsonl --calibration $(DECISIONS)/calibration.jsonl --test $(DECISIONS)/test.jsonl

model: .venv/train ; $(BIN)/python -m desk.decisions.generate --out $(DECISIONS) && $(BIN)/python -m decider.train $(EXAMPLES) --out decider/models/desk && $(BIN)/python -m desk.decisions.fit_flags --cases $(DECISIONS)/calibration_cases.jsonl

# The public decision set comes from elsewhere: make figures PUBLIC=path/of/desk_decisions_v1.jsonl.gz. Without it the
# figures of our own held-out wordings are printed, and no page changes.
TEXTS := desk/decisions/pools/general_test.json
figures: .venv/dev $(DECISIONS)/test_cases.jsonl ; $(BIN)/python benchmarks/decider_figures.py $(if $(PUBLIC),--write --public $(PUBLIC)) --cases $(DECISIONS)/test_cases.jsonl $(if $(wildcard $(TEXTS)),--texts $(TEXTS)) && $(BIN)/python benchmarks/decider_cpu.py $(if $(PUBLIC),--write docs/decider-runtime.md)

report: .venv/desk $(DECISIONS)/test_cases.jsonl ; $(BIN)/python -m desk.decisions.wordings --out runs/wordings.json && $(BIN)/decider report decider/models/desk $(DECISIONS)/test.jsonl --wordings runs/wordings.json --out runs/report.html --progress

$(DECISIONS)/test_cases.jsonl: .venv/desk ; $(BIN)/python -m desk.decisions.generate --out $(DECISIONS)

wheel: .venv/dev ; $(BIN)/python -m build --wheel

clean: ; rm -rf .venv dist build runs

.venv/bin/python: ; $(PYTHON) -m venv .venv

.venv/desk: .venv/bin/python pyproject.toml ; $(BIN)/python -m pip install --quiet --editable ".[desk]" && touch $@

.venv/dev: .venv/bin/python pyproject.toml ; $(BIN)/python -m pip install --quiet --editable ".[dev]" && touch $@

.venv/train: .venv/bin/python pyproject.toml ; $(BIN)/python -m pip install --quiet torch==2.13.0 && $(BIN)/python -m pip install --quiet --editable ".[train,desk]" && touch $@
