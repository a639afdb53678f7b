# One bridge of our own carries the addresses of the nodes, of DNS and of the object store, and connects the pods.
# (A kernel may lack the dummy interface; a bridge is needed for the pods anyway.)
# shellcheck shell=bash disable=SC2034 # used by the other parts

BRIDGE=shapetrace0
POD_RANGE=10.244.0.0/24
SERVICE_RANGE=10.96.0.0/16
KUBERNETES_SERVICE_ADDRESS=10.96.0.1
NODE_1_ADDRESS=10.244.0.1 # also of the API server, DNS and the object store
NODE_2_ADDRESS=10.244.0.2

# What the kubelet and we set. Written down before, put back by down.
SYSCTLS=(net/ipv4/ip_forward net/bridge/bridge-nf-call-iptables vm/overcommit_memory vm/panic_on_oom kernel/panic
  kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes)

remember_sysctls() {
  local name
  [[ -e $RUN_DIR/sysctls ]] && return
  for name in "${SYSCTLS[@]}"; do
    if [[ -r /proc/sys/$name ]]; then echo "$name $(cat "/proc/sys/$name")"; fi
  done >"$RUN_DIR/sysctls"
}

restore_sysctls() {
  local name value
  [[ -e $RUN_DIR/sysctls ]] || return 0
  while read -r name value; do
    if [[ $(cat "/proc/sys/$name" 2>/dev/null) != "$value" ]]; then echo "$value" >"/proc/sys/$name" || true; fi
  done <"$RUN_DIR/sysctls"
  rm -f "$RUN_DIR/sysctls"
}

# table chain rule; each carries our name, so that down finds what up made.
firewall_rules() {
  # A host whose policy is DROP (Docker, ufw) would drop what pods send to each other and to the node.
  echo "filter FORWARD -i $BRIDGE -j ACCEPT"
  echo "filter FORWARD -o $BRIDGE -j ACCEPT"
  echo "filter INPUT -i $BRIDGE -j ACCEPT"
  echo "nat POSTROUTING -s $POD_RANGE ! -d $POD_RANGE -j MASQUERADE"
}

for_each_rule() { # -I, -D or -C
  local table chain rule
  while read -r table chain rule; do
    # The rule is a list of words.
    # shellcheck disable=SC2086
    iptables -w 30 -t "$table" "$1" "$chain" $rule -m comment --comment shapetrace-local || [[ $1 == -D ]] || return 1
  done < <(firewall_rules)
}

make_network() {
  remember_sysctls
  ip link show "$BRIDGE" >/dev/null 2>&1 || ip link add "$BRIDGE" type bridge
  ip address replace "$NODE_1_ADDRESS/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  echo 1 >/proc/sys/net/ipv4/ip_forward
  echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
  for_each_rule -C 2>/dev/null || { for_each_rule -D 2>/dev/null; for_each_rule -I; }
}

remove_network() {
  local bin
  bin=$(binaries_dir)
  # kube-proxy removes its chains itself; it complains about what is not there.
  if [[ -x $bin/kube-proxy ]] && iptables -w 30 -t nat -n -L KUBE-SERVICES >/dev/null 2>&1; then
    "$bin/kube-proxy" --cleanup >"$RUN_DIR/logs/kube-proxy-cleanup.log" 2>&1 || true
  fi
  remove_kubelet_chains
  for_each_rule -D 2>/dev/null || true
  ip link delete "$BRIDGE" 2>/dev/null || true
  restore_sysctls
}

# The kubelet's own chains stay behind kube-proxy's cleanup: rules that jump there, then the rules in them, then they.
remove_kubelet_chains() {
  local command table rules rule chain chains
  for command in iptables ip6tables; do
    for table in mangle nat filter; do
      rules=$("$command" -w 30 -t "$table" -S 2>/dev/null) || continue
      while read -r rule; do
        # iptables prints rules with shell quoting.
        eval "$command -w 30 -t $table -D ${rule#-A }" 2>/dev/null || true
      done < <(grep -E '^-A [A-Z]+ .*-j KUBE-' <<<"$rules")
      mapfile -t chains < <(sed -n 's/^-N \(KUBE-[A-Z0-9-]*\)$/\1/p' <<<"$rules")
      for chain in "${chains[@]}"; do "$command" -w 30 -t "$table" -F "$chain" 2>/dev/null || true; done
      for chain in "${chains[@]}"; do "$command" -w 30 -t "$table" -X "$chain" 2>/dev/null || true; done
    done
  done
}
