# etcd, API server, controller manager, scheduler, Service proxy, DNS.
# shellcheck shell=bash

kubectl_admin() { "$RUN_DIR/bin/kubectl" --kubeconfig "$RUN_DIR/admin.kubeconfig" "$@"; }

start_etcd() {
  local pki=$RUN_DIR/pki url=https://127.0.0.1:12379
  # TLS even on the loopback: what is in it (Secrets) is not for every user of this machine. Not 2379: a packaged etcd sits there.
  start_process etcd etcd --name=local --data-dir="$RUN_DIR/etcd" \
    --listen-client-urls="$url" --advertise-client-urls="$url" --client-cert-auth --trusted-ca-file="$pki/ca.crt" \
    --cert-file="$pki/etcd.crt" --key-file="$pki/etcd.key" \
    --listen-peer-urls=http://127.0.0.1:12380 --initial-advertise-peer-urls=http://127.0.0.1:12380 --initial-cluster=local=http://127.0.0.1:12380 \
    --quota-backend-bytes=$((512 * 1024 * 1024)) --auto-compaction-retention=10m --snapshot-count=5000 --logger=zap --log-level=warn
}

start_apiserver() {
  local pki=$RUN_DIR/pki
  # shutdown-send-retry-after: without it the server waits for open watches, which is up to 60 s after SIGTERM; with it
  # it answers "try again" to new requests, lets running ones end, and closes watches after two seconds.
  start_process apiserver "$RUN_DIR/bin/kube-apiserver" \
    --etcd-servers=https://127.0.0.1:12379 --etcd-cafile="$pki/ca.crt" --etcd-certfile="$pki/apiserver-client.crt" --etcd-keyfile="$pki/apiserver-client.key" \
    --bind-address="$NODE_1_ADDRESS" --advertise-address="$NODE_1_ADDRESS" --secure-port=6443 \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
    --service-account-key-file="$pki/service-accounts.key" --service-account-signing-key-file="$pki/service-accounts.key" \
    --service-account-issuer=https://kubernetes.default.svc --service-cluster-ip-range="$SERVICE_RANGE" \
    --authorization-mode=Node,RBAC --anonymous-auth=false --allow-privileged=true --shutdown-send-retry-after=true \
    --enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement \
    --kubelet-client-certificate="$pki/apiserver-client.crt" --kubelet-client-key="$pki/apiserver-client.key" \
    --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
    --audit-policy-file="$HERE/audit-policy.yaml" --audit-log-path="$RUN_DIR/audit.log" --audit-log-maxsize=32 --audit-log-maxbackup=2
  await_process apiserver 180 "readiness" kubectl_admin get --raw /readyz
}

start_controllers() {
  local pki=$RUN_DIR/pki
  start_process kube-controller-manager "$RUN_DIR/bin/kube-controller-manager" --kubeconfig="$pki/kube-controller-manager.kubeconfig" \
    --bind-address=127.0.0.1 --leader-elect=false --use-service-account-credentials=true \
    --service-account-private-key-file="$pki/service-accounts.key" --root-ca-file="$pki/ca.crt"
  start_process kube-scheduler "$RUN_DIR/bin/kube-scheduler" --kubeconfig="$pki/kube-scheduler.kubeconfig" --bind-address=127.0.0.1 --leader-elect=false
}

start_service_proxy() {
  # One for all nodes: they share this machine's network. The host's conntrack settings stay as they are.
  start_process kube-proxy "$RUN_DIR/bin/kube-proxy" --kubeconfig="$RUN_DIR/pki/kube-proxy.kubeconfig" --hostname-override=node-1 \
    --cluster-cidr="$POD_RANGE" --nodeport-addresses="$POD_RANGE" --proxy-mode=iptables \
    --healthz-bind-address=127.0.0.1:10256 --metrics-bind-address=127.0.0.1:10249 \
    --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0s --conntrack-tcp-timeout-close-wait=0s
}

start_dns() {
  local forward=
  if grep -q '^nameserver' /etc/resolv.conf 2>/dev/null; then forward='forward . /etc/resolv.conf'; fi
  cat >"$RUN_DIR/Corefile" <<EOF
.:53 {
  bind $NODE_1_ADDRESS
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $RUN_DIR/admin.kubeconfig
    ttl 1
  }
  $forward
}
EOF
  start_process coredns "$RUN_DIR/bin/coredns" -conf "$RUN_DIR/Corefile"
  await_process coredns 120 "listening on $NODE_1_ADDRESS:53" connects "$NODE_1_ADDRESS" 53
}

connects() { # address, port
  (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null
}
