# Where this cannot work, it says why, all reasons at once, and what to do for each.
# shellcheck shell=bash

PROBLEMS=()
problem() { PROBLEMS+=("$*"); }

refuse_if_problems() { # what was wanted
  ((${#PROBLEMS[@]} > 0)) || return 0
  say "cannot $1 on this machine:"
  printf '  - %s\n' "${PROBLEMS[@]}" >&2
  say "The same engine, capture, collector and finish without Kubernetes and without root: make run-local"
  exit 1
}

check_machine() {
  [[ $(uname -s) == Linux ]] || problem "this is $(uname -s), not Linux: containers need a Linux kernel; use a Linux machine or VM"
  if ((EUID != 0)); then problem "not root: bridges, mounts and cgroups need it; run it by sudo, or in a VM"; fi
}

check_go() {
  local version
  if ! command -v go >/dev/null; then
    problem "no 'go' in PATH: install Go >= $GO_MINIMUM"
    return
  fi
  version=$(cd / && go env GOVERSION)
  version_at_least "${version#go}" "$GO_MINIMUM" || problem "$version is too old: install Go >= $GO_MINIMUM"
}

check_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]} == 0)) || problem "Debian packages are missing: ${missing[*]}; run '$SELF build', or apt-get install them"
}

has_capability() { # bit
  local effective
  effective=$(sed -n 's/^CapEff:\t//p' /proc/self/status)
  (((0x$effective >> $1) & 1))
}

# Asked before a build too: ten minutes of compiling for a cluster that cannot run would be a poor joke.
check_kernel() {
  ((EUID == 0)) || return 0
  # Bits of linux/capability.h. CAP_SYS_RESOURCE (24) is not needed: containerd is told to live without it.
  has_capability 12 || problem "no CAP_NET_ADMIN: this container may not make a bridge; start it privileged, or use a VM"
  has_capability 21 || problem "no CAP_SYS_ADMIN: this container may not mount; start it privileged, or use a VM"
  grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || problem "the kernel has no overlay filesystem: modprobe overlay"
  check_cgroups
  check_network
}

check_cgroups() {
  local dir name=shapetrace-probe.$$
  if [[ $(cgroup_version) == none ]]; then
    problem "no cgroup file system at /sys/fs/cgroup: mount it (in a container: give it a cgroup namespace of its own and a writable /sys/fs/cgroup)"
    return
  fi
  for dir in $(cgroup_roots); do
    if ! mkdir "$dir/$name" 2>/dev/null; then
      problem "$dir is not writable: a container needs it mounted read-write (docker run --privileged --cgroupns=private)"
      return
    fi
    rmdir "$dir/$name"
  done
  if [[ $(cgroup_version) == 2 ]] && ! enable_cgroup2_controllers /sys/fs/cgroup 2>/dev/null; then
    problem "cgroup v2: the controllers cpu, memory and pids cannot be handed down from /sys/fs/cgroup (it holds processes itself, as in a container whose init was not moved): use a VM, or move them into a child group first"
  fi
}

check_network() {
  local bridge=stprobe$$
  if ! command -v ip >/dev/null || ! command -v iptables >/dev/null; then return; fi # build installs them, up asks again
  if ip link add "$bridge" type bridge 2>/dev/null; then
    ip link delete "$bridge"
  else
    problem "cannot make a bridge: modprobe bridge, or a kernel with CONFIG_BRIDGE"
  fi
  # Without it a Service's address does not work between pods of one bridge.
  [[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]] || modprobe br_netfilter 2>/dev/null ||
    problem "the kernel has no br_netfilter: modprobe br_netfilter"
  iptables -w 5 -t nat -n -L POSTROUTING >/dev/null 2>&1 || problem "iptables does not work here ('iptables -t nat -L' says why): modprobe iptable_nat or nf_tables"
}

# Things that only matter while no cluster of ours runs.
check_free() {
  local port taken
  # conntrack and KUBE- rules of another kube-proxy on this machine would be mixed with ours.
  if iptables -w 5 -t nat -n -L KUBE-SERVICES >/dev/null 2>&1; then
    problem "iptables has the rules of another kube-proxy (k3s, kubeadm, minikube --driver=none): stop that cluster, or use another machine. If it is gone, 'kube-proxy --cleanup' removes them"
  fi
  # shellcheck disable=SC2153 # network.sh sets it
  if ip -o -4 address show | grep -v " $BRIDGE " | grep -qE ' 10\.(244|96)\.'; then
    problem "a network interface already has an address of 10.244.0.0/16 or 10.96.0.0/16, which the pods and Services use: $(ip -o -4 address show | awk '/ 10\.(244|96)\./ {print $2, $4}')"
  fi
  for port in 2379 2380 6443 10249 10256 10257 10259; do
    [[ $port != 2379 && $port != 2380 ]] || port=$((port + 10000)) # ours: a packaged etcd sits on 2379
    taken=$(port_holder "$port")
    [[ -z $taken ]] || problem "port $port is taken by $taken: stop it"
  done
  local free_mebibytes
  free_mebibytes=$(df -m --output=avail "$CACHE_DIR" | tail -n 1)
  ((free_mebibytes >= 6000)) || problem "only $((free_mebibytes)) MiB free below $CACHE_DIR; binaries, images and nodes need 6000: free some, or set SHAPETRACE_CACHE_DIR"
  # A UNIX socket's path has 107 characters at most; the kubelet's longest below the run folder has 46.
  ((${#RUN_DIR} <= 60)) || problem "the path $RUN_DIR is too long for UNIX sockets below it: set SHAPETRACE_CACHE_DIR to a shorter one"
}

# Who listens on a port of the loopback or of all addresses.
port_holder() {
  ss -H -ltnp "( sport = :$1 )" 2>/dev/null | awk '$4 ~ /^(127\.0\.0\.1|0\.0\.0\.0|\*|\[::\]|10\.244\.0\.1):/ {print $NF; exit}' |
    sed 's/users:(("\([^"]*\)",pid=\([0-9]*\).*/\1 (process \2)/'
}
