# Operator, preflight, collector and finish, and the payload that runs inside engines.
#
#   docker build -f job-image/images/shapetrace.Dockerfile -t shapetrace .        (from the repository's root)
#
# A proxy, a mirror or an authority of one's own reaches the build by secrets, which leave nothing in the image:
#   apt-conf (an apt.conf), apt-sources (a sources.list, named by that apt.conf), pip-conf (a pip.conf), ca (a PEM bundle).
ARG BASE=docker.io/library/debian:trixie-slim

# What others wrote: changes seldom. In place and in one layer, without the tools that made it; copied from a stage of
# its own, its 10,000 files would be read again at every build. Bytecode that is never checked against its source's time:
# a layer's times are not reliable, and a read-only root could not keep what Python would compile instead.
FROM ${BASE} AS dependencies
COPY requirements/image.txt /opt/venv/requirements.txt
RUN --mount=type=secret,id=apt-conf --mount=type=secret,id=apt-sources --mount=type=secret,id=ca \
    --mount=type=secret,id=pip-conf,target=/etc/pip.conf \
    if [ -s /run/secrets/apt-conf ]; then export APT_CONFIG=/run/secrets/apt-conf; fi; export DEBIAN_FRONTEND=noninteractive \
 && apt-get update -q \
 && apt-get install -y -q --no-install-recommends ca-certificates python3 \
 && apt-get install -y -q --no-install-recommends python3-venv \
 && python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install -q --no-cache-dir --no-compile --require-hashes --only-binary :all: -r /opt/venv/requirements.txt \
 && /opt/venv/bin/pip uninstall -q -y pip \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/venv/lib \
 && apt-get purge -y -q --auto-remove python3-venv \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*
# The user has no entry in /etc/passwd: getpass.getuser() (kopf calls it) and expanduser() need HOME, USER and LOGNAME.
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp USER=shapetrace LOGNAME=shapetrace PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp

FROM dependencies AS tools
COPY job-image/images/build-requirements.txt /build/
RUN --mount=type=secret,id=apt-conf --mount=type=secret,id=apt-sources --mount=type=secret,id=ca \
    --mount=type=secret,id=pip-conf,target=/etc/pip.conf \
    if [ -s /run/secrets/apt-conf ]; then export APT_CONFIG=/run/secrets/apt-conf; fi; export DEBIAN_FRONTEND=noninteractive \
 && apt-get update -q && apt-get install -y -q --no-install-recommends python3-venv \
 && /usr/bin/python3 -m venv /opt/tools && /opt/tools/bin/pip install -q --no-cache-dir --require-hashes -r /build/build-requirements.txt

# What we wrote. Installed from an index-less folder of wheels by name: pip then writes no direct_url.json.
FROM tools AS code
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
 && python -m compileall -q --invalidation-mode unchecked-hash -s /out/venv -p /opt/venv /out/venv \
 && python -m compileall -q --invalidation-mode unchecked-hash -s /out/payload -p /opt/shapetrace-payload /out/payload \
 && if find /out -name direct_url.json | grep .; then echo "a path of the build would be in the image" >&2; exit 1; fi

# Last, so that a change of our code makes these small layers only.
FROM dependencies
COPY --from=code /out/payload /opt/shapetrace-payload
COPY --from=code /out/venv /opt/venv
USER 10001:10001
