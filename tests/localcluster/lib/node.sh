# A node: its own containerd, kubelet, cgroup root and part of the pods' addresses. Several fit on one machine.
# shellcheck shell=bash

NODES=(node-1 node-2)
PAUSE_IMAGE=localhost/pause:1

node_address() { if [[ $1 == node-1 ]]; then echo "$NODE_1_ADDRESS"; else echo "$NODE_2_ADDRESS"; fi; }
node_pod_addresses() { if [[ $1 == node-1 ]]; then echo "10.244.0.10 10.244.0.127"; else echo "10.244.0.128 10.244.0.250"; fi; }
node_socket() { echo "$RUN_DIR/$1/containerd.sock"; }
# Images outlive the cluster: unpacking them is the slowest part of a start.
node_storage() { echo "$CACHE_DIR/nodes/$1"; }

running_nodes() {
  local node
  for node in "${NODES[@]}"; do
    if is_alive "$node.containerd"; then echo "$node"; fi
  done
}

node_ctr() { # node, arguments of ctr
  local node=$1
  shift
  ctr -a "$(node_socket "$node")" -n k8s.io "$@"
}

start_containerd() { # node
  local node=$1 dir=$RUN_DIR/$1 first last
  mkdir -p "$dir/cni" "$(node_storage "$node")"
  read -r first last < <(node_pod_addresses "$node")
  cat >"$dir/containerd.toml" <<EOF
version = 2
root = "$(node_storage "$node")"
state = "$dir/state"
[grpc]
  address = "$(node_socket "$node")"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  # Where root lacks CAP_SYS_RESOURCE the kernel refuses a lower oom_score_adj, and runc ends with
  # "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  # Ours alone, below the run folder: down then finds every mount.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_plugins_dir)"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "$dir/runc"
EOF
  cat >"$dir/cni/10-bridge.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "shapetrace-$node", "plugins": [
  {"type": "bridge", "bridge": "$BRIDGE", "isGateway": false, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$dir/ipam", "routes": [{"dst": "0.0.0.0/0"}],
            "ranges": [[{"subnet": "$POD_RANGE", "rangeStart": "$first", "rangeEnd": "$last", "gateway": "$NODE_1_ADDRESS"}]]}}]}
EOF
  start_process "$node.containerd" containerd --config "$dir/containerd.toml"
  await_process "$node.containerd" 120 "answer on $(node_socket "$node")" node_ctr "$node" version
}

start_kubelet() { # node
  local node=$1 dir=$RUN_DIR/$1 address
  address=$(node_address "$node")
  ip address replace "$address/24" dev "$BRIDGE"
  (
    umask 077
    issue_certificate "$node" "/O=system:nodes/CN=system:node:$node" "DNS:$node,IP:$address"
    write_kubeconfig "$node" "$RUN_DIR/pki/$node.kubeconfig"
  )
  make_cgroup_root "shapetrace-$node"
  # The pods' resolver comes from clusterDNS; this only keeps the kubelet from reading the host's.
  echo "nameserver $NODE_1_ADDRESS" >"$RUN_DIR/resolv.conf"
  # Hard eviction low: a developer's disk is often fuller than 85 %, and nothing here is precious.
  cat >"$dir/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $address
healthzPort: 0
cgroupDriver: cgroupfs
cgroupRoot: /shapetrace-$node
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://$(node_socket "$node")
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $RUN_DIR/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $RUN_DIR/pki/$node.crt
tlsPrivateKeyFile: $RUN_DIR/pki/$node.key
clusterDNS: ["$NODE_1_ADDRESS"]
clusterDomain: cluster.local
resolvConf: $RUN_DIR/resolv.conf
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: "100Mi"}
imageGCHighThresholdPercent: 100
containerLogMaxSize: 10Mi
containerLogMaxFiles: 2
EOF
  start_process "$node.kubelet" "$RUN_DIR/bin/kubelet" --config="$dir/kubelet.yaml" --kubeconfig="$RUN_DIR/pki/$node.kubeconfig" \
    --hostname-override="$node" --node-ip="$address" --root-dir="$dir/kubelet"
  await_process "$node.kubelet" 180 "node $node Ready" node_is_ready "$node"
}

node_is_ready() {
  [[ $(kubectl_admin get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null) == True ]]
}

# Before the kubelet starts nothing may run: containers of a cluster that ended badly would be taken for its own.
remove_containers() { # node
  local node=$1
  node_ctr "$node" tasks ls -q 2>/dev/null | xargs -r -P 8 -I{} ctr -a "$(node_socket "$node")" -n k8s.io tasks rm -f {} >/dev/null 2>&1 || true
  node_ctr "$node" containers ls -q 2>/dev/null | xargs -r ctr -a "$(node_socket "$node")" -n k8s.io containers rm >/dev/null 2>&1 || true
  node_ctr "$node" snapshots ls 2>/dev/null | awk '$3 == "Active" {print $1}' | xargs -r -n 1 ctr -a "$(node_socket "$node")" -n k8s.io snapshots rm >/dev/null 2>&1 || true
}

start_node() { # node
  local node=$1
  if ! is_alive "$node.containerd"; then
    step "$node containerd" start_containerd "$node"
    if ! is_alive "$node.kubelet"; then remove_containers "$node"; fi
  fi
  load_images "$node" pause
  if ! is_alive "$node.kubelet" || ! node_is_ready "$node"; then step "$node kubelet, until Ready" start_kubelet "$node"; fi
}

stop_node() { # node
  local node=$1 pid
  stop_process "$node.kubelet" 5
  if is_alive "$node.containerd"; then remove_containers "$node"; fi
  stop_process "$node.containerd" 10
  # Shims outlive containerd on purpose; ours name the socket.
  for pid in $(pgrep -f -- "containerd-shim.* -address $(node_socket "$node")( |\$)" || true); do kill -KILL "$pid" 2>/dev/null || true; done
  rm -f /var/lib/cni/results/"shapetrace-$node"-*
  # The kubelet makes these whatever its --root-dir says.
  rmdir /var/lib/kubelet/device-plugins /var/lib/kubelet /var/log/pods /var/log/containers 2>/dev/null || true
  remove_cgroup_root "shapetrace-$node"
}
