# A stock engine image: Debian's Python and PyTorch (a CPU build whose profiler works), and nothing of ours.
# Our code reaches it, as it reaches a vendor's image, by the payload that the pod's init container copies.
#
# Secrets: see shapetrace.Dockerfile.
ARG BASE=docker.io/library/debian:trixie-slim
FROM ${BASE}
RUN --mount=type=secret,id=apt-conf --mount=type=secret,id=apt-sources --mount=type=secret,id=ca \
    if [ -s /run/secrets/apt-conf ]; then export APT_CONFIG=/run/secrets/apt-conf; fi \
 && apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends ca-certificates python3 python3-numpy python3-torch \
 && rm -rf /usr/lib/libtorch-test /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*
USER 10001:10001
