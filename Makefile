# make setup | serve | test | clients | soak | bench | clean.  ARGS are passed on: make serve ARGS="--port 9000"
ARGS ?=
BIN := .venv/bin
# Named after the folder: a virtual environment does not survive a move.
READY := .venv/.ready$(subst /,-,$(CURDIR))
BENCH ?= load

.PHONY: setup serve test clients soak bench clean

setup: $(READY)

$(READY): deploy/setup.sh pyproject.toml requirements.lock
	@sh deploy/setup.sh $@

serve: setup
	@exec $(BIN)/engine-ctl serve $(ARGS)

test: setup
	@$(BIN)/engine-ctl pull smollm2
	@$(BIN)/engine-ctl pull gemma3
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m pytest -q -n 2 $(ARGS)

# The JavaScript clients that tests drive, from npm into the user's cache folder; without them their tests are skipped.
clients: setup
	@$(BIN)/python -m tests.clients.node_packages

# Tests that take long, in all about an hour on two cores: each kind of cache through 1,000 random lives, whole models through
# 500 random schedules each, 600 faults at random places of the engine, schemas on SmolLM2, Gemma 3 past its window, thousands
# of requests after /openapi.json. One folder's: make soak ARGS=tests/parity
soak: setup
	@$(BIN)/engine-ctl pull smollm2
	@$(BIN)/engine-ctl pull gemma3
	@$(BIN)/python -m pytest -q -m soak $(ARGS)

# One of bench/'s programs: make bench BENCH=step ARGS="--help"
bench: setup
	@$(BIN)/python -m bench.$(BENCH) $(ARGS)

clean:
	@rm -rf .venv build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis .schemathesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
