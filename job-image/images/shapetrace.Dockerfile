# Operator, preflight, collector and finish, and the payload that runs inside engines.
#
#   docker build -f job-image/images/shapetrace.Dockerfile -t shapetrace .        (from the repository's root)
#
# A proxy, a mirror or an authority of one's own reaches the build by secrets, which leave nothing in the image:
#   apt-conf (an apt.conf), apt-sources (a sources.list, named by that apt.conf), pip-conf (a pip.conf), ca (a PEM bundle).
ARG BASE=docker.io/library/debian:trixie-slim

FROM ${BASE} AS python
RUN --mount=type=secret,id=apt-conf --mount=type=secret,id=apt-sources --mount=type=secret,id=ca \
    if [ -s /run/secrets/apt-conf ]; then export APT_CONFIG=/run/secrets/apt-conf; fi \
 && apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*

FROM python AS tools
RUN --mount=type=secret,id=apt-conf --mount=type=secret,id=apt-sources --mount=type=secret,id=ca \
    if [ -s /run/secrets/apt-conf ]; then export APT_CONFIG=/run/secrets/apt-conf; fi \
 && apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-venv
COPY job-image/images/build-requirements.txt /build/
RUN --mount=type=secret,id=pip-conf,target=/etc/pip.conf --mount=type=secret,id=ca \
    python3 -m venv /opt/tools && /opt/tools/bin/pip install -q --no-cache-dir --require-hashes -r /build/build-requirements.txt

# What others wrote: changes seldom. Bytecode that is never checked against its source's time: a layer's times are not
# reliable, and a read-only root could not keep what Python would compile instead.
FROM tools AS dependencies
COPY requirements/image.txt /build/
RUN --mount=type=secret,id=pip-conf,target=/etc/pip.conf --mount=type=secret,id=ca \
    python3 -m venv --without-pip /opt/venv \
 && /opt/tools/bin/pip --python /opt/venv/bin/python install -q --no-cache-dir --no-compile --require-hashes --only-binary :all: -r /build/image.txt \
 && /opt/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/venv/lib

# What we wrote. Installed from an index-less folder of wheels by name: pip then writes no direct_url.json.
FROM dependencies AS code
COPY LICENSE README.md pyproject.toml /src/
COPY job-image /src/job-image
COPY crds /src/crds
COPY operator /src/operator
COPY traces /src/traces
COPY cli /src/cli
RUN cd /src \
 && /opt/tools/bin/pip wheel -q --no-cache-dir --no-index --no-deps --no-build-isolation -w /wheels /src /src/job-image \
 && /opt/tools/bin/pip --python /opt/venv/bin/python install -q --no-compile --no-index --no-deps --find-links /wheels --prefix /out/venv shapetrace shapetrace-capture \
 && /opt/tools/bin/pip --python /opt/venv/bin/python install -q --no-compile --no-index --no-deps --find-links /wheels --target /out/payload shapetrace-capture \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /out/venv -p /opt/venv /out/venv \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /out/payload -p /opt/shapetrace-payload /out/payload \
 && if find /out -name direct_url.json | grep .; then echo "a path of the build would be in the image" >&2; exit 1; fi

FROM python
COPY --from=dependencies /opt/venv /opt/venv
# The user has no entry in /etc/passwd: getpass.getuser() (kopf calls it) and expanduser() need these.
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp USER=shapetrace LOGNAME=shapetrace PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
# Last, so that a change of our code makes these small layers only.
COPY --from=code /out/payload /opt/shapetrace-payload
COPY --from=code /out/venv /opt/venv
