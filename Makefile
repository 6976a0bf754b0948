# `make test` and `make demo` set up everything they need in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench soak results docs clean

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

# What the demo needs is a tenth of what the tests need.
.venv/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	test -e .venv/.installed || $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[demo]'
	touch $@

demo: .venv/.demo
	$(BIN)/terrine demo

# Three processes on two cores: tests wait for servers and browsers as well.
# Python that keeps what it compiled, and pytest what it rewrote, starts the hundreds of programs of the tests sooner.
test soak: export PYTHONDONTWRITEBYTECODE =
test: check
	$(BIN)/python -m pytest -n 3 --dist worksteal

check: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.installed
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/exact.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/profile.py --svhn
	$(BIN)/python benchmarks/schema.py
	$(BIN)/python benchmarks/sensitivity.py
	$(BIN)/python benchmarks/teachers.py
	$(BIN)/python benchmarks/service.py
	$(BIN)/python benchmarks/ledger.py

soak: .venv/.installed # and benchmarks/results/soak.json
	TERRINE_SOAK=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests

# Tables and figures of docs/results, from data under $TERRINE_DATA. Files that GPU runs left, where there are some:
# VOTES=FOLDER (vote files of MNIST and Glyph), FEATURES=FILE (features of MNIST's images), LONG=1 (another half hour);
# without them these parts are drawn again from the committed JSON.
TERRINE_DATA ?= ../shared/data
results: export TERRINE_DATA := $(abspath $(TERRINE_DATA))
results: .venv/.installed
	@for part in votes mnist adult glyph; do test -d "$$TERRINE_DATA/$$part" || \
	  { echo "Expected the folder $$part under TERRINE_DATA=$$TERRINE_DATA (see docs/datasets.md), got none."; exit 2; }; done
	$(BIN)/python experiments/paper_votes.py
	$(BIN)/python experiments/accounting.py
	$(BIN)/python experiments/cost_by_gap.py
	$(BIN)/python experiments/coverage.py
	$(BIN)/python experiments/table2.py
	$(BIN)/python experiments/glyph_samples.py
	$(BIN)/python experiments/adult_students.py
	@echo "students on MNIST and Glyph: taken from docs/results/{mnist,glyph}_students.json (GPU)"
	$(BIN)/python experiments/mnist_students.py show
	$(BIN)/python experiments/glyph_students.py show
	$(if $(FEATURES),,@echo "student_by_teachers, dpsgd: taken from their JSON; FEATURES=FILE runs them")
	$(BIN)/python experiments/student_by_teachers.py $(or $(FEATURES),--draw)
	$(BIN)/python experiments/dpsgd.py $(if $(FEATURES),--features $(FEATURES),--page)
	$(if $(VOTES),,@echo "figures, claims: taken from their JSON; VOTES=FOLDER runs them")
	$(BIN)/python experiments/figures.py $(if $(VOTES),--votes $(VOTES),--draw)
	$(BIN)/python experiments/claims.py $(if $(VOTES),--votes $(VOTES),--draw)
	$(if $(LONG),$(BIN)/python experiments/paper_small.py training && $(BIN)/python experiments/paper_small.py glyph && $(BIN)/python experiments/paper_small.py open,@echo "paper_small: taken from its JSON; LONG=1 runs what is not there")
	$(BIN)/python experiments/paper_small.py show
	$(if $(LONG),,@echo "tested_route, scaling: taken from their JSON; LONG=1 runs them")
	$(BIN)/python experiments/tested_route.py $(if $(LONG),,--resume)
	$(BIN)/python experiments/scaling.py $(if $(LONG),,--draw)
	$(BIN)/python experiments/table1.py
	$(BIN)/python experiments/provenance.py

# The site, in site/: warnings are errors, links and anchors are checked, every public name has its words.
.venv/.docs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean
	@echo "Open site/index.html"

clean:
	rm -rf .venv site
