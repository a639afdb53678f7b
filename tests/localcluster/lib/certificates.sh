# The cluster's own authority, certificates and kubeconfigs.
# shellcheck shell=bash

PKI_DAYS=365

make_authority() {
  local pki=$RUN_DIR/pki
  [[ -s $pki/ca.crt ]] && return
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/service-accounts.key"
  # Python 3.13 refuses a chain whose authority has no key usage.
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "$PKI_DAYS" -subj "/CN=shapetrace local cluster" \
    -keyout "$pki/ca.key" -out "$pki/ca.crt.new" 2>/dev/null \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
  mv "$pki/ca.crt.new" "$pki/ca.crt"
}

issue_certificate() { # name, subject, alternative names
  local target=$RUN_DIR/pki/$1
  [[ -s $target.crt ]] && return
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$2" -keyout "$target.key" -out "$target.csr" 2>/dev/null
  printf '%s\n' "subjectAltName=$3" keyUsage=critical,digitalSignature extendedKeyUsage=serverAuth,clientAuth \
    subjectKeyIdentifier=hash authorityKeyIdentifier=keyid >"$target.ext"
  # A random serial, so that certificates can be made side by side.
  openssl x509 -req -in "$target.csr" -CA "$RUN_DIR/pki/ca.crt" -CAkey "$RUN_DIR/pki/ca.key" -set_serial "0x$(openssl rand -hex 16 | sed 's/^./1/')" \
    -days "$PKI_DAYS" -extfile "$target.ext" -out "$target.crt.new" 2>/dev/null
  mv "$target.crt.new" "$target.crt"
  rm -f "$target.csr" "$target.ext"
}

# A kubeconfig that holds everything, so that it can be copied.
write_kubeconfig() { # certificate's name, target
  [[ -s $2 ]] && return
  (
    umask 077
    cat >"$2.new" <<EOF
apiVersion: v1
kind: Config
clusters:
- name: shapetrace-local
  cluster:
    server: https://$NODE_1_ADDRESS:6443
    certificate-authority-data: $(base64 -w 0 <"$RUN_DIR/pki/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w 0 <"$RUN_DIR/pki/$1.crt")
    client-key-data: $(base64 -w 0 <"$RUN_DIR/pki/$1.key")
contexts:
- name: shapetrace-local
  context: {cluster: shapetrace-local, user: $1}
current-context: shapetrace-local
EOF
    mv "$2.new" "$2"
  )
}

make_credentials() {
  (
    umask 077
    make_authority
    issue_certificate apiserver /CN=kube-apiserver \
      "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1,IP:$KUBERNETES_SERVICE_ADDRESS,IP:$NODE_1_ADDRESS"
    issue_certificate etcd /CN=etcd "DNS:localhost,IP:127.0.0.1"
    issue_certificate apiserver-client "/O=system:masters/CN=apiserver-client" DNS:apiserver-client
    issue_certificate admin "/O=system:masters/CN=admin" DNS:admin
    local component
    for component in kube-controller-manager kube-scheduler kube-proxy; do
      issue_certificate "$component" "/CN=system:$component" "DNS:$component"
      write_kubeconfig "$component" "$RUN_DIR/pki/$component.kubeconfig"
    done
    write_kubeconfig admin "$RUN_DIR/admin.kubeconfig"
  )
}
