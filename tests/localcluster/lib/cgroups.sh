# A cgroup root for each node, so that two kubelets on one machine do not remove each other's pods. cgroup v1 and v2.
# shellcheck shell=bash

cgroup_version() {
  case $(stat -fc %T /sys/fs/cgroup 2>/dev/null) in
    cgroup2fs) echo 2 ;;
    tmpfs) if [[ -n $(cgroup_v1_roots) ]]; then echo 1; else echo none; fi ;;
    *) echo none ;;
  esac
}

# One hierarchy a controller, as mounted; two controllers may share one.
cgroup_v1_roots() { awk '$3 == "cgroup" {print $2}' /proc/mounts; }

cgroup_roots() { if [[ $(cgroup_version) == 2 ]]; then echo /sys/fs/cgroup; else cgroup_v1_roots; fi; }

enable_cgroup2_controllers() { # folder
  local controller
  for controller in cpu memory pids cpuset io; do
    grep -qw "$controller" "$1/cgroup.controllers" || continue
    grep -qw "$controller" "$1/cgroup.subtree_control" || echo "+$controller" >"$1/cgroup.subtree_control" || return 1
  done
}

make_cgroup_root() { # name
  local root file
  for root in $(cgroup_roots); do
    mkdir -p "$root/$1"
    if [[ -e $root/$1/cpuset.cpus && ! -e $root/cgroup.controllers ]]; then
      # v1: a new cpuset is empty, and an empty one takes no process.
      for file in cpuset.cpus cpuset.mems; do cat "$root/$file" >"$root/$1/$file"; done
    fi
  done
  if [[ $(cgroup_version) == 2 ]]; then
    enable_cgroup2_controllers /sys/fs/cgroup
    enable_cgroup2_controllers "/sys/fs/cgroup/$1"
  fi
}

remove_cgroup_root() { # name
  local root
  # On v1 runc makes a folder below "unified" too, mounted or not.
  for root in $(cgroup_roots) /sys/fs/cgroup/unified; do
    [[ -d $root/$1 ]] || continue
    find "$root/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
}
