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
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

## ---- generated files
.PHONY: generate
generate: venv ## write the CRD, its copy in the chart and the tables of docs
	$(BIN)/python docs/generate.py

## ---- checks
.PHONY: format lint test-unit test-s3 test-torch test-vllm test-sglang test-gpu test-cluster test-cluster-vllm test fuzz
format: venv ## format and fix what can be fixed
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .
lint: venv ## ruff, mypy --strict, import-linter, generated files, shell scripts, chart
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	$(BIN)/shellcheck -x $$(grep -rlE '^#!/usr/bin/env bash' $(SCRIPTS))
	@if helm=$$(ls -t $(CACHE)/bin/*/helm 2>/dev/null | head -1) && [ -n "$$helm" ]; then \
	  $$helm lint --strict charts/shapetrace; else echo "chart not linted: no helm yet (make cluster-up builds it)"; fi
test-unit: venv ## unit tests, without torch, under a minute
	$(BIN)/pytest tests/unit -n 4 --dist loadfile  # many of them wait for processes
test-s3: venv ## tests against a real S3 server of their own
	$(BIN)/pytest tests/s3
test-torch: venv venv-torch ## tests with torch: the engine, run-local
	$(TORCH_VENV)/bin/pytest tests/torch tests/local
test-vllm: venv ## tests on vLLM's real classes and on a whole vLLM on a CPU (its environment is made once, 5 GB)
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then PYTHON=$(PYTHON) tests/vllm/run; \
	  else $(BIN)/pytest tests/vllm; fi  # elsewhere they say why they skip
test-sglang: venv ## tests on SGLang's real classes, four versions (environment: once, 3 minutes and 6 GB)
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then PYTHON=$(PYTHON) tests/sglang/run; \
	  else $(BIN)/pytest tests/sglang; fi  # elsewhere they say why they skip
GPU_RESULT ?=
test-gpu: venv-torch ## what only an NVIDIA GPU can answer, under 5 minutes; without one it says so and fails with 77
	$(TORCH_VENV)/bin/python tests/gpu/check_gpu.py $(GPU_RESULT)
test-cluster: venv cluster-up ## tests on the real local cluster, faults included
	$(BIN)/pytest tests/cluster --ignore=tests/cluster/vllm -m "not disruptive" -n $(CLUSTER_WORKERS) --dist worksteal
	$(BIN)/pytest tests/cluster tests/demo -m disruptive
test-cluster-vllm: venv cluster-up ## the real vLLM in a pod, on a CPU (its image is built once, 4 minutes and 4 GB)
	@if [ "$$(uname -m)" = x86_64 ]; then $(CLUSTER) images vllm-stand-in; fi  # elsewhere the tests say why they skip
	$(BIN)/pytest tests/cluster/vllm -n $(CLUSTER_WORKERS) --dist worksteal
fuzz: $(CACHE)/fuzz/.done ## fuzz the reader of traces and manifests, FUZZ_SECONDS each
	@for target in trace manifest; do \
	  PYTHONPATH=traces:job-image $(CACHE)/fuzz/bin/python tests/fuzz/fuzz.py $$target -max_len=4000 \
	    -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(CACHE)/fuzz/ $(CACHE)/fuzz/corpus-$$target || exit 1; done
FUZZ_SECONDS ?= 60
$(CACHE)/fuzz/.done: tests/fuzz/requirements.txt
	$(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install --quiet --require-hashes -r $< && touch $@
test: ## everything: lint, unit, S3, torch, cluster, demo, vLLM in a pod
	tests/run-all
# Two runs at once on two cores: more would make conditions late that have to be shown within 30 s
CLUSTER_WORKERS ?= 2
SCRIPTS := tests requirements examples bench .ci

## ---- benchmarks
.PHONY: bench-capture bench-read
ROUNDS ?= 9
bench-capture: venv ## what recording every shape costs, against SGLang's own way (ROUNDS=9, a quarter of a minute each; test-sglang's environment)
	PYTHON=$(PYTHON) bench/run-capture --rounds $(ROUNDS)
bench-read: venv $(CACHE)/readers/.done ## what reading a trace costs, against unpacking alone and against others' readers
	$(BIN)/python bench/read.py --readers-python $(CACHE)/readers/bin/python --rounds $(ROUNDS)
$(CACHE)/readers/.done: bench/readers.txt
	$(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install --quiet --no-deps --require-hashes -r $< && touch $@

## ---- local cluster
.PHONY: cluster-up cluster-down demo run-local clean
cluster-up: venv ## build (once), start or join the local cluster, load the images
	$(CLUSTER) build
	$(CLUSTER) up
	$(CLUSTER) images
cluster-down: ## stop it and remove what it mounted
	$(CLUSTER) down
demo: ## a ProfileRun on a local cluster, its 32 traces in ./demo-out
	examples/demo
run-local: venv-torch ## the same engine, capture, collector and finish as local processes: no Kubernetes, no root
	$(TORCH_VENV)/bin/shapetrace run-local examples/quickstart.yaml --out run-local-out --replace
clean: ## remove the environments and outputs of this folder (not the cache)
	rm -rf $(VENV) $(TORCH_VENV) demo-out run-local-out test-logs
