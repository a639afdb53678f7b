# shapetrace: `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/shapetrace
PYTHON ?= python3
VENV := .venv
TORCH_VENV := .venv-torch
BIN := $(VENV)/bin
CLUSTER := tests/localcluster/cluster
SOURCES := crds operator job-image traces cli
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## ---- environment
.PHONY: venv venv-torch requirements
venv: $(VENV)/.done ## the development environment (no torch)
venv-torch: $(TORCH_VENV)/.done ## the same with torch, for run-local and the torch tests

# pyproject.toml is named, so that a new source root reaches the editable install
$(VENV)/.done: requirements/dev.txt pyproject.toml job-image/pyproject.toml
	@tests/make-venv $(VENV) requirements/dev.txt $(PYTHON)
$(TORCH_VENV)/.done: requirements/torch.txt pyproject.toml job-image/pyproject.toml
	@tests/make-venv $(TORCH_VENV) requirements/torch.txt $(PYTHON)

requirements: ## pin the requirements anew (needs uv)
	requirements/compile.sh

## ---- checks
.PHONY: lint format
format: venv ## format and fix what can be fixed
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .
lint: venv ## ruff, mypy --strict, import-linter, shellcheck, CRD diff
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
