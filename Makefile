# `make test` and `make demo` set up everything they need in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench soak clean

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/.installed
	$(BIN)/terrine demo

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.installed
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/exact.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/sensitivity.py
	$(BIN)/python benchmarks/teachers.py
	$(BIN)/python benchmarks/service.py

soak: .venv/.installed # and benchmarks/results/soak.json
	TERRINE_SOAK=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests

clean:
	rm -rf .venv
