# up, node2, restart, status, down.
# shellcheck shell=bash

# What a running cluster was made of. Another value means that another version of these scripts made it.
cluster_recipe() { cat "$HERE"/lib/{certificates,controlplane,network,node,cgroups}.sh "$HERE/audit-policy.yaml" <(binaries_dir) | sha256sum | cut -c 1-16; }

control_plane=(etcd apiserver kube-controller-manager kube-scheduler kube-proxy coredns)

any_alive() {
  local name
  for name in $(process_names); do
    if is_alive "$name"; then return 0; fi
  done
  return 1
}

dead_processes() {
  local name
  for name in $(process_names); do is_alive "$name" || printf '%s ' "$name"; done
}

bring_up() {
  if any_alive; then join; else start_fresh; fi
}

join() {
  local dead node
  [[ $(readlink "$RUN_DIR/bin") == "$(binaries_dir)" ]] ||
    die "a cluster with other binaries runs ($(readlink "$RUN_DIR/bin")); when nothing uses it: '$SELF down', then up again"
  [[ $(cat "$RUN_DIR/recipe" 2>/dev/null) == "$(cluster_recipe)" ]] ||
    say "  note: the cluster was started by another version of these scripts; '$SELF down' and up again, when nothing uses it, takes the changes"
  dead=$(dead_processes)
  if ! object_store_answers; then dead+="object-store "; fi
  if [[ -n $dead ]]; then
    say "  had ended: ${dead}(logs: $RUN_DIR/logs); starting again"
    start_all
    for node in "${NODES[@]}"; do
      if [[ $node != node-1 && -e $RUN_DIR/commands/$node.kubelet ]]; then start_node "$node"; fi
    done
  fi
  if ! await 120 is_healthy; then
    say "  not healthy within 120 s: $(unhealthy_parts); making it anew"
    take_down
    start_fresh
    return
  fi
  say "  joined the cluster that runs since $(stat -c %y "$RUN_DIR/recipe" | cut -d. -f1)"
  load_all_images
}

start_fresh() {
  # What a crash or a reboot left behind.
  if [[ -d $RUN_DIR ]]; then take_down; fi
  check_kernel
  check_free
  refuse_if_problems "run the local cluster"
  mkdir -p "$RUN_DIR"
  chmod 700 "$RUN_DIR" # keys, and the volumes of pods
  mkdir -p "$RUN_DIR"/{pids,commands,logs,pki}
  ln -sfn "$(binaries_dir)" "$RUN_DIR/bin"
  cluster_recipe >"$RUN_DIR/recipe"
  start_all
  load_all_images
}

# Each part starts only what does not run.
start_all() {
  local object_store
  ensure_pause_image
  step "network" make_network
  start_object_store 2>"$RUN_DIR/logs/object-store-start.log" & # takes as long as all the rest
  object_store=$!
  step "certificates" make_credentials
  step "etcd" start_etcd
  step "API server" start_apiserver
  step "controller manager, scheduler" start_controllers
  start_node node-1
  step "Service proxy" start_service_proxy
  step "DNS" start_dns
  step "object store http://$S3_ADDRESS:$S3_PORT" await_object_store "$object_store"
}

await_object_store() { # pid
  wait "$1" && return
  cat "$RUN_DIR/logs/object-store-start.log" >&2
  die "the object store did not start"
}

is_healthy() { [[ -z $(unhealthy_parts) ]]; }

unhealthy_parts() {
  local name node
  for name in "${control_plane[@]}" node-1.containerd node-1.kubelet; do is_alive "$name" || printf '%s ' "$name"; done
  kubectl_admin get --raw /readyz >/dev/null 2>&1 || printf 'API-server-not-ready '
  for node in $(running_nodes); do node_is_ready "$node" || printf '%s-not-ready ' "$node"; done
  object_store_answers || printf 'object-store '
}

add_second_node() {
  is_alive apiserver || die "no cluster runs: '$SELF up' first"
  start_node node-2
  load_images node-2 "${IMAGES[@]}"
}

restart_part() { # process
  local began
  [[ -n ${1:-} ]] || die "restart what? One of: $(process_names)"
  began=$(milliseconds)
  case $1 in
    apiserver)
      # It drains after SIGTERM; a new one before that ends with "address already in use".
      step "API server ends" stop_process apiserver 25
      step "API server starts" restart_process apiserver 1
      step "API server ready" await_process apiserver 180 readiness kubectl_admin get --raw /readyz
      say "  the API server was away for $(seconds_since "$began")" ;;
    *) step "$1 again" restart_process "$1" 30 ;;
  esac
}

print_status() {
  local name
  if ! any_alive; then
    say "no cluster runs (up starts one)"
    return 3
  fi
  for name in $(process_names); do printf '%-28s %s\n' "$name" "$(pid_of "$name" || echo ended)"; done
  printf '%-28s %s\n' "object store" "$(if object_store_answers; then echo "http://$S3_ADDRESS:$S3_PORT"; else echo "does not answer"; fi)"
  kubectl_admin get nodes -o wide --no-headers 2>/dev/null | awk '{print $1, $2, $6}' || true
  printf 'memory of all of it: %s MiB\n' "$(memory_mebibytes)"
  printf 'kubeconfig: %s\n' "$RUN_DIR/admin.kubeconfig"
  if ! is_healthy; then
    say "not healthy: $(unhealthy_parts)"
    return 1
  fi
}

memory_mebibytes() {
  local name pid total=0 kibibytes
  for name in $(process_names); do
    pid=$(pid_of "$name") || continue
    kibibytes=$(awk '/^VmRSS/ {print $2}' "/proc/$pid/status" 2>/dev/null || echo 0)
    total=$((total + kibibytes))
  done
  echo $((total / 1024))
}

take_down() {
  local name node
  step "object store" stop_object_store
  for node in node-2 node-1; do
    if [[ -e $RUN_DIR/commands/$node.containerd || -e $RUN_DIR/$node ]]; then step "$node" stop_node "$node"; fi
  done
  step "control plane" stop_control_plane
  for name in $(process_names); do stop_process "$name" 10; done
  step "network" remove_network
  step "mounts and files" remove_run_dir
}

stop_control_plane() {
  local name
  # All at once; the API server, which drains, meets an end after five seconds: nobody is left to be served.
  for name in "${control_plane[@]}"; do
    if pid=$(pid_of "$name"); then kill "$pid" 2>/dev/null || true; fi
  done
  for name in coredns kube-proxy kube-scheduler kube-controller-manager apiserver etcd; do stop_process "$name" 5; done
}

# Shims write for a moment after they were killed; mounts vanish with the last process in them.
unmount_below() { # folder
  awk -v dir="$1/" 'index($5, dir) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r mount; do umount -l "$(printf '%b' "$mount")" || true; done
}

remove_run_dir() {
  unmount_below "$RUN_DIR"
  # The logs of the last run stay, for whoever comes to look.
  rm -rf "$CACHE_DIR/logs/cluster"
  mkdir -p "$CACHE_DIR/logs"
  if [[ -d $RUN_DIR/logs ]]; then mv "$RUN_DIR/logs" "$CACHE_DIR/logs/cluster"; fi
  if grep -q " $RUN_DIR/" /proc/self/mountinfo; then die "still mounted: $(grep -o " $RUN_DIR/[^ ]*" /proc/self/mountinfo | head -n 3); not removing files below it"; fi
  rm -rf "$RUN_DIR"
}

fake_gpu() { # node, resource, count
  local node=${1:-node-1} resource=${2:-amd.com/gpu} count=${3:-8} key
  is_alive apiserver || die "no cluster runs: '$SELF up' first"
  key=${resource//\~/\~0}
  key=${key//\//\~1}
  kubectl_admin patch node "$node" --subresource=status --type=json -p "[
    {\"op\": \"add\", \"path\": \"/status/capacity/$key\", \"value\": \"$count\"},
    {\"op\": \"add\", \"path\": \"/status/allocatable/$key\", \"value\": \"$count\"}]" >/dev/null
  say "$node now has $count x $resource (until its kubelet starts again)"
}
