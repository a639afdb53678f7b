# Kubernetes, CoreDNS and helm, compiled from Go modules that go/*/go.mod pins with checksums.
# shellcheck shell=bash

# program -> module folder, package
PROGRAMS=(
  "kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver"
  "kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager"
  "kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler"
  "kubelet kubernetes k8s.io/kubernetes/cmd/kubelet"
  "kube-proxy kubernetes k8s.io/kubernetes/cmd/kube-proxy"
  "kubectl kubernetes k8s.io/kubernetes/cmd/kubectl"
  "coredns coredns github.com/coredns/coredns"
  "helm helm helm.sh/helm/v3/cmd/helm"
)

# The same for all: packages compiled with other flags would not be shared in Go's build cache.
GO_BUILD_FLAGS=(-trimpath -mod=readonly -buildvcs=false)

linker_flags() { # module folder
  case $1 in
    kubernetes)
      local package=k8s.io/component-base/version minor=${KUBERNETES_VERSION#1.}
      echo "-s -w -X $package.gitVersion=v$KUBERNETES_VERSION -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}" ;;
    helm)
      # the version that `helm template` and `lint` assume without a server; otherwise 1.20
      local package=helm.sh/helm/v3 minor=${KUBERNETES_VERSION#1.} assumed=""
      for part in pkg/chartutil pkg/lint/rules; do
        assumed+=" -X $package/$part.k8sVersionMajor=1 -X $package/$part.k8sVersionMinor=${minor%%.*}"
      done
      echo "-s -w -X $package/internal/version.version=v$HELM_VERSION$assumed" ;;
    *) echo "-s -w" ;;
  esac
}

# The folder of the binaries that belong to the pinned modules, the flags and Go's version.
binaries_dir() {
  local key module
  key=$({
    go env GOVERSION GOARCH
    printf '%s\n' "${PROGRAMS[@]}" "${GO_BUILD_FLAGS[@]}"
    for module in kubernetes coredns helm; do linker_flags "$module"; done
    cat "$HERE"/go/*/go.mod "$HERE"/go/*/go.sum "$HERE/pause/main.go"
  } | sha256sum)
  echo "$CACHE_DIR/bin/k8s-$KUBERNETES_VERSION-${key:0:12}"
}

# Compiles what is missing. Cold: about 8 minutes on two cores; from Go's cache: under two.
build_binaries() {
  local bin program module package number=0
  bin=$(binaries_dir)
  mkdir -p "$bin"
  for entry in "${PROGRAMS[@]}"; do
    read -r program module package <<<"$entry"
    number=$((number + 1))
    if [[ -x $bin/$program ]]; then continue; fi
    step "$program ($number of ${#PROGRAMS[@]})" compile "$bin/$program" "$HERE/go/$module" "$package" "$(linker_flags "$module")"
  done
  [[ -x $bin/pause ]] || step "pause" compile "$bin/pause" "$HERE/pause" main.go "-s -w"
  # Each key is about 600 MB: keep this one and the one before it.
  touch "$bin"
  keep_newest 2 "$CACHE_DIR"/bin/k8s-*
}

compile() { # target, module folder, package, linker flags
  local target=$1 folder=$2 package=$3 flags=$4
  (cd "$folder" && CGO_ENABLED=0 GOWORK=off go build "${GO_BUILD_FLAGS[@]}" -ldflags "$flags" -o "$target.new" "$package") ||
    die "go could not build $package; the first lines above say why (without a network the modules have to be in Go's module cache)"
  mv "$target.new" "$target"
}

require_binaries() {
  local bin program rest
  bin=$(binaries_dir)
  for entry in "${PROGRAMS[@]}"; do
    read -r program rest <<<"$entry"
    : "$rest"
    [[ -x $bin/$program ]] || die "$program ${KUBERNETES_VERSION} is not built yet: run '$SELF build' (once, about 10 minutes on two cores)"
  done
}

# For maintainers: writes go/*/go.mod and go.sum anew from versions.env.
pin_modules() {
  local name module entry packages
  for name in kubernetes coredns helm; do
    case $name in
      kubernetes) module=k8s.io/kubernetes@v$KUBERNETES_VERSION ;;
      coredns) module=github.com/coredns/coredns@v$COREDNS_VERSION ;;
      helm) module=helm.sh/helm/v3@v$HELM_VERSION ;;
    esac
    packages=()
    for entry in "${PROGRAMS[@]}"; do
      read -r _ folder package <<<"$entry"
      [[ $folder == "$name" ]] && packages+=("$package")
    done
    step "pin $module" pin_module "$HERE/go/$name" "$name" "$module" "${packages[@]}"
  done
}

pin_module() { # folder, name, module@version, package...
  local folder=$1 name=$2 module=$3 package
  shift 3
  mkdir -p "$folder"
  (
    cd "$folder" || exit
    rm -f go.mod go.sum
    go mod init "shapetrace.dev/localcluster/$name"
    go mod edit -go="$GO_MINIMUM.0" -require="${module/@/@}"
    if [[ $name == kubernetes ]]; then
      # Kubernetes' own go.mod points its staging modules at folders beside it, all as v0.0.0.
      go mod download -json "$module" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p' | while read -r upstream; do
        sed -n 's/^\t\(k8s.io\/[a-z-]*\) => .*/\1/p' "$upstream"
      done | while read -r staging; do go mod edit -replace="$staging=$staging@v0.${KUBERNETES_VERSION#1.}"; done
    fi
    for package in "$@"; do go mod edit -tool="$package"; done
    GOFLAGS=-mod=mod go mod tidy
  )
}
