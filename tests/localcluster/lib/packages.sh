# What comes from Debian: the container runtime, the image builder, etcd.
# shellcheck shell=bash

# command or file -> package. Looked up by command, so that the same from another source (Docker's containerd) will do.
DEBIAN_PACKAGES=(
  "containerd containerd"
  "ctr containerd"
  "runc runc"
  "/usr/lib/cni/bridge containernetworking-plugins"
  "buildah buildah"
  "debootstrap debootstrap"
  "iptables iptables"
  "conntrack conntrack"
  "etcd etcd-server"
  "ip iproute2"
  "openssl openssl"
  "mount mount"
  "ps procps"
)

missing_packages() {
  local entry thing package
  for entry in "${DEBIAN_PACKAGES[@]}"; do
    read -r thing package <<<"$entry"
    if [[ $thing == /* ]]; then
      [[ -e $thing || -e /opt/cni/bin/${thing##*/} ]] || echo "$package"
    else
      command -v "$thing" >/dev/null || echo "$package"
    fi
  done | sort -u
}

cni_plugins_dir() { if [[ -e /usr/lib/cni/bridge ]]; then echo /usr/lib/cni; else echo /opt/cni/bin; fi; }

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]} > 0)) || return 0
  command -v apt-get >/dev/null || die "missing: ${missing[*]}; this machine has no apt-get to install them with (Debian 12 or newer is what this was made for)"
  step "apt-get install ${missing[*]}" apt_install "${missing[@]}"
}

apt_install() {
  local made=
  # The packages bring services (etcd, containerd) that would start at once and take the ports. We run our own.
  if [[ ! -e /usr/sbin/policy-rc.d ]]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    made=yes
  fi
  local status=0
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >"$CACHE_DIR/apt.log" 2>&1 || status=$?
  if [[ -n $made ]]; then rm -f /usr/sbin/policy-rc.d; fi
  if ((status != 0)); then
    tail -n 15 "$CACHE_DIR/apt.log" >&2
    die "apt-get could not install $*; all of its output: $CACHE_DIR/apt.log"
  fi
  if [[ -d /run/systemd/system ]]; then
    # Only what this call brought: nor should it start with the machine.
    local package
    for package in "$@"; do
      case $package in
        containerd) systemctl disable -q containerd || true ;;
        etcd-server) systemctl disable -q etcd || true ;;
      esac
    done
  fi
}
