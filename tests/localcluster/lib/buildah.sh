# Image builds without a daemon and without a hub: a base from Debian's archive, then the Dockerfiles, under chroot.
# shellcheck shell=bash

BUILDAH_DIR=$CACHE_DIR/buildah
# Above this the build cache is thrown away: what it saves is minutes, once.
BUILDAH_LIMIT_MEBIBYTES=10000

# A store of our own: the person's images are neither seen nor changed.
run_buildah() { # sub-command, arguments
  env BUILDAH_ISOLATION=chroot TMPDIR="$BUILDAH_DIR/tmp" buildah --root "$BUILDAH_DIR/storage" --runroot "$BUILDAH_DIR/run" "$@"
}

# Runs a command quietly; what it printed is shown when it fails.
quietly() { # log, command...
  local log=$1
  shift
  mkdir -p "${log%/*}"
  "$@" >"$log" 2>&1 </dev/null && return
  tail -n 25 "$log" | cut -c 1-300 >&2
  die "'$1 $2' failed; all of its output: $log"
}

# The mirror that this machine's apt uses, so that a mirror near by or inside a company is used here too.
debian_mirror() {
  local mirror
  # shellcheck disable=SC2016 # a format of apt's
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' 'Label: Debian' 2>/dev/null | sort -u | head -n 1)
  [[ -n $mirror ]] || die "apt knows no Debian archive: name one in /etc/apt/sources.list, then: apt-get update"
  echo "$mirror"
}

# This machine's way to packages, as files that the build sees as secrets: nothing of them gets into a layer.
write_build_secrets() { # folder
  local dir=$1 authorities mirror
  mirror=$(debian_mirror) || exit 1
  {
    # Proxies and the like. apt's own defaults come along, which changes nothing.
    apt-config dump 2>/dev/null | grep '^Acquire::' | grep -viE 'ca(info|path)|::(ssl|issuer)cert|Changelogs' || true
    echo 'Acquire::https::CAInfo "/run/secrets/ca";'
    echo 'Dir::Etc::SourceList "/run/secrets/apt-sources";'
    echo 'Dir::Etc::SourceParts "-";'
    echo 'APT::Sandbox::User "root";' # the secrets are root's
  } >"$dir/apt-conf"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $DEBIAN_SUITE main" >"$dir/apt-sources"
  authorities=$(ca_bundle)
  if [[ -n $authorities ]]; then cp "$authorities" "$dir/ca"; else : >"$dir/ca"; fi
  {
    echo "[global]"
    pip_settings
    if [[ -n $authorities ]]; then echo "cert = /run/secrets/ca"; fi
  } >"$dir/pip-conf"
}

# Where packages come from, by pip's own account (its files and its environment), the environment winning.
pip_settings() {
  local python
  for python in "$REPOSITORY/.venv/bin/python" python3; do
    "$python" -m pip --version >/dev/null 2>&1 || continue
    "$python" -m pip config list 2>/dev/null | sed -n "s/^\(global\|install\|:env:\)\.\(index-url\|extra-index-url\|trusted-host\|proxy\|timeout\|default-timeout\)='\(.*\)'\$/\2 = \3/p" |
      sed 's/^default-timeout/timeout/' | tac | awk -F ' = ' '{last[$1] = $0} END {for (name in last) print last[name]}'
    return
  done
}

ca_bundle() {
  local file
  for file in "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}" /etc/ssl/certs/ca-certificates.crt; do
    if [[ -s $file ]]; then
      echo "$file"
      return
    fi
  done
}

base_key() {
  local key
  key=$( (
    echo "$DEBIAN_SUITE $DEBIAN_BASE_REVISION"
    declare -f make_base clean_base
  ) | sha256sum)
  echo "$DEBIAN_SUITE-${key:0:12}"
}
base_image() { echo "localhost/shapetrace-base:$(base_key)"; }

# Makes sure that the base image is in the store.
ensure_base() {
  local archive image
  archive=$CACHE_DIR/images/base-$(base_key).tar
  image=$(base_image)
  if run_buildah inspect --type image "$image" >/dev/null 2>&1; then return; fi
  [[ -s $archive ]] || step "Debian $DEBIAN_SUITE base (debootstrap)" make_base "$archive"
  step "base image" import_base "$archive" "$image"
  keep_newest 1 "$CACHE_DIR"/images/base-*.tar
}

make_base() { # archive
  local root=$CACHE_DIR/tmp/base mirror
  mirror=$(debian_mirror) || exit 1
  rm -rf "$root"
  mkdir -p "$root" "$CACHE_DIR/images"
  quietly "$CACHE_DIR/logs/debootstrap.log" debootstrap --variant=minbase "$DEBIAN_SUITE" "$root" "$mirror"
  clean_base "$root"
  tar -C "$root" --numeric-owner -cf "$1.new" .
  rm -rf "$root"
  mv "$1.new" "$1"
}

# What debootstrap leaves of this machine, and what a container has no use for.
clean_base() { # root
  local root=$1
  rm -rf "$root"/etc/{hostname,resolv.conf,hosts,machine-id} "$root"/var/{cache/apt,lib/apt/lists,log}/* "$root"/usr/share/{doc,man,info,locale}/* \
    "$root"/etc/apt/sources.list "$root"/etc/apt/apt.conf.d/*proxy* "${root:?}"/dev/* "${root:?}"/tmp/*
  mkdir -p "$root"/var/cache/apt/archives/partial "$root"/var/lib/apt/lists/partial
  printf '%s\n' "path-exclude /usr/share/doc/*" "path-include /usr/share/doc/*/copyright" "path-exclude /usr/share/man/*" \
    "path-exclude /usr/share/info/*" "path-exclude /usr/share/locale/*" >"$root/etc/dpkg/dpkg.cfg.d/container"
}

import_base() { # archive, image
  local context=$CACHE_DIR/tmp/base-context
  rm -rf "$context"
  mkdir -p "$context"
  ln "$1" "$context/base.tar"
  printf 'FROM scratch\nADD base.tar /\nCMD ["bash"]\n' >"$context/Dockerfile"
  quietly "$CACHE_DIR/logs/base.log" run_buildah bud --quiet --tag "$2" "$context"
  rm -rf "$context"
}

# Builds an image's Dockerfile and writes its archive.
build_image() { # name, tag, context folder, archive
  local name=$1 tag=$2 context=$3 archive=$4 secrets secret arguments=() layers=true
  if is_test_image "$name"; then layers=false; fi # one layer, of which no later build can use anything
  secrets=$(mktemp -d "$CACHE_DIR/tmp/secrets.XXXXXX")
  write_build_secrets "$secrets"
  for secret in apt-conf apt-sources pip-conf ca; do arguments+=(--secret "id=$secret,src=$secrets/$secret"); done
  quietly "$CACHE_DIR/logs/image-$name.log" run_buildah bud --layers=$layers --force-rm --pull=false --build-arg "BASE=$(base_image)" "${arguments[@]}" \
    --file "$context/$(dockerfile_of "$name")" --tag "$tag" "$context"
  rm -rf "$secrets"
  write_archive "$tag" "$archive"
  if is_test_image "$name"; then run_buildah rmi "$tag" >/dev/null; fi
}

# zstd at its fastest: a 1.1 GB image took 13 s to write and 16 s to import; with gzip 27 and 20, uncompressed 14 and 24.
write_archive() { # image, archive
  rm -f "$2.new"
  quietly "$CACHE_DIR/logs/push.log" run_buildah push --quiet --compression-format zstd --compression-level 1 "$1" "oci-archive:$2.new:$1"
  mv "$2.new" "$2"
}

# A build that was ended leaves its working container, mounted.
remove_working_containers() {
  [[ -d $BUILDAH_DIR/storage ]] || return 0
  run_buildah rm --all >/dev/null 2>&1 || true
  unmount_below "$BUILDAH_DIR"
}

prune_build_store() {
  local used image
  # Tags of earlier contents; their layers go unless a later build uses them.
  for image in $(run_buildah images --format '{{.Name}}:{{.Tag}}' 2>/dev/null | grep -E '^localhost/shapetrace(-engine)?:' | awk -F : '++seen[$1] > 2'); do
    run_buildah rmi "$image" >/dev/null 2>&1 || true
  done
  used=$(du -sm "$BUILDAH_DIR" 2>/dev/null | cut -f 1)
  if ((used > BUILDAH_LIMIT_MEBIBYTES)); then
    say "  the build cache grew to $used MiB: removed; the next image build is a cold one"
    remove_build_store
  fi
}

remove_build_store() {
  remove_working_containers
  run_buildah rmi --all --force >/dev/null 2>&1 || true
  unmount_below "$BUILDAH_DIR"
  rm -rf "$BUILDAH_DIR"
}
