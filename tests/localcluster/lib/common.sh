# Paths, messages, time and locks: what every other part uses.
# shellcheck shell=bash disable=SC2034 # used by the other parts

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
REPOSITORY=$(cd "$HERE/../.." && pwd)
SELF=${SELF:-$HERE/cluster}
CACHE_DIR=${SHAPETRACE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/shapetrace}
RUN_DIR=$CACHE_DIR/cluster

# shellcheck source=SCRIPTDIR/../versions.env
source "$HERE/versions.env"

say() { printf '%s\n' "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

milliseconds() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

seconds_since() { # milliseconds -> "12.3 s"
  local passed=$(($(milliseconds) - $1))
  printf '%d.%d s' $((passed / 1000)) $((passed % 1000 / 100))
}

# Runs a function under a name, and says the name when it starts and the time when it ends.
STEPS=()
step() { # name, command...
  local name=$1 began
  shift
  began=$(milliseconds)
  STEPS+=("$name")
  say "  $name ..."
  "$@"
  unset 'STEPS[-1]'
  say "  $name: $(seconds_since "$began")"
}

# What was being done when the script ended early.
on_exit() {
  local status=$?
  if ((status != 0 && ${#STEPS[@]} > 0)); then say "stopped in step: ${STEPS[*]}"; fi
}

# Waits until a command succeeds. 0.2 s: far below what any of the awaited things takes.
await() { # seconds, command...
  local until=$(($(milliseconds) + $1 * 1000))
  shift
  until "$@" >/dev/null 2>&1; do
    (($(milliseconds) < until)) || return 1
    sleep 0.2
  done
}

# Holds a lock until this shell ends. Daemons must not inherit it: start_process closes every descriptor.
take_lock() { # name
  local handle
  mkdir -p "$CACHE_DIR"
  exec {handle}>"$CACHE_DIR/$1.lock"
  if ! flock -n "$handle"; then
    say "waiting: another '$SELF' works on the $1 (at most 30 minutes)"
    flock -w 1800 "$handle" || die "the lock $CACHE_DIR/$1.lock was not free after 30 minutes; who holds it: fuser $CACHE_DIR/$1.lock"
  fi
}

keep_newest() { # count, path...
  local count=$1 path
  shift
  # A name with a newline cannot occur: these are our own keys.
  # shellcheck disable=SC2012
  ls -dt -- "$@" 2>/dev/null | tail -n "+$((count + 1))" | while read -r path; do rm -rf -- "$path"; done || true
}

version_at_least() { # version, minimum
  [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]
}
