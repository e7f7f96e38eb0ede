# The usual commands, in the environment `.venv`; `make setup` makes it.
BIN ?= .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup lint format types layers lock fast test exhaustive faults image docs lab demo ci

help: ## list these commands
	@sed -nE 's/^([a-z]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 12

setup: ## make the environment
	python3 -m venv .venv
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q -e '.[lab]' --group dev --group docs

lint: ## style: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff check --select E501 --config lint.pycodestyle.max-line-length=100 rollout
	$(BIN)/ruff format --check .

format: ## mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: ## mypy, strict
	$(BIN)/mypy

layers: ## which room may import which
	$(BIN)/lint-imports

lock: ## write what pyproject.toml asks for, with hashes, for the image and releases
	UV=$(BIN)/uv .ci/lock

fast: ## tests that are pure, and take no time
	$(BIN)/pytest -q -n 2 -m "not slow and not exhaustive"

test: ## the default tier of the tests
	$(BIN)/pytest -q -n 4 --dist worksteal

exhaustive: ## every test, with a hundred times the examples: an hour or more; real machines as root
	$(BIN)/pytest -q -n 4 --dist worksteal -m "" --hypothesis-profile=exhaustive

faults: ## put faults into the engine, one at a time: each has to be found by the default tier
	$(BIN)/python -m tests.mutations.faults

image: ## build the image without an engine, and start it; as root
	ROLLOUT_IMAGE=1 $(BIN)/pytest -q tests/image

docs: ## generated parts anew, and the site into site/
	$(BIN)/python -m tests.docs.pages
	$(BIN)/zensical build --strict --clean

lab: ## a simulated cluster until Ctrl-C
	$(BIN)/rollout lab up

demo: ## the real commands on a simulated cluster
	$(BIN)/rollout demo

ci: ## all that has to hold before a change is taken
	.ci/run
