# Two commands matter: `make gate` and `make test`. CI runs the same lines.
PROFILE ?= cpu-mini
PY = .venv/bin/python

.PHONY: setup gate test check test-deep screen clean

setup:
	@tools/setup.sh

gate: setup
	@./gate --profile $(PROFILE) $(if $(CANDIDATE),--candidate $(CANDIDATE)) $(if $(RUN_ID),--run-id $(RUN_ID))

test: setup
	$(PY) -m pytest -m "not acceptance and not deep and not npu"

test-deep: setup
	$(PY) -m pytest -m "deep and not npu"

check: setup
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	$(PY) -m acceptance plans

clean:
	rm -rf .venv build *.egg-info
