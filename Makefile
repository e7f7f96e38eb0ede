# The usual commands. They use the environment in `.venv`, which `make setup` creates.
BIN ?= .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup lint format types layers lock fast test exhaustive faults image docs lab demo ci

help: ## list these commands
	@sed -nE 's/^([a-z]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 12

setup: ## create the environment
	python3 -m venv .venv
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q -e '.[lab]' --group dev --group docs

lint: ## check style and formatting with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff check --select E501 --config lint.pycodestyle.max-line-length=100 rollout
	$(BIN)/ruff format --check .

format: ## fix style and formatting with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: ## check types with mypy in strict mode
	$(BIN)/mypy

layers: ## check which package may import which
	$(BIN)/lint-imports

lock: ## update the lock files of the image and the releases from pyproject.toml
	UV=$(BIN)/uv .ci/lock

fast: ## run the fast tests, which start no lab and no program
	$(BIN)/pytest -q -n 2 -m "not slow and not exhaustive"

test: ## run the default tier of the tests
	$(BIN)/pytest -q -n 4 --dist worksteal

exhaustive: ## run every test, with a hundred times as many examples; as root also with systemd containers
	$(BIN)/pytest -q -n 4 --dist worksteal -m "" --hypothesis-profile=exhaustive

faults: ## inject faults into the engine, one at a time; the tests must find each one
	$(BIN)/python -m tests.mutations.faults

image: ## build and start the image without a container engine; needs root
	ROLLOUT_IMAGE=1 $(BIN)/pytest -q tests/image

docs: ## update the generated parts of the pages, and build the site into site/
	$(BIN)/python -m tests.docs.pages
	$(BIN)/zensical build --strict --clean

lab: ## run a simulated cluster until Ctrl-C
	$(BIN)/rollout lab up

demo: ## run the demo on a simulated cluster
	$(BIN)/rollout demo

ci: ## run everything that a change must pass
	.ci/run
