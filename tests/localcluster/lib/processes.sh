# Daemons: started once, detached from the shell that started them, found again by pid and start time.
# shellcheck shell=bash

pid_of() { # name -> pid, or nothing; a pid that was given to another process since is not ours
  local pid started
  read -r pid started 2>/dev/null <"$RUN_DIR/pids/$1" || return 1
  [[ $(start_time "$pid") == "$started" ]] || return 1
  echo "$pid"
}

start_time() { # pid -> clock ticks since boot; nothing for a process that is gone or a zombie
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  # The command, in parentheses, may hold spaces. Behind it: state (field 0), threads (17), start time (19).
  read -ra stat <<<"${stat##*) }"
  # A zombie whose threads still end holds its ports until they have.
  if [[ ${stat[0]} != Z ]] || ((stat[17] > 1)); then echo "${stat[19]}"; fi
}

is_alive() { pid_of "$1" >/dev/null; }

# Starts a command under a name unless it runs. Its arguments are kept, for restart_process.
start_process() { # name, command...
  local name=$1
  shift
  if is_alive "$name"; then return 0; fi
  printf '%s\0' "$@" >"$RUN_DIR/commands/$name"
  spawn "$name"
}

spawn() { # name
  local name=$1 argv pid
  mapfile -d '' -t argv <"$RUN_DIR/commands/$name"
  # Nothing of the caller is inherited: no terminal, no descriptor (a lock's among them), no proxy, no KUBECONFIG.
  # shellcheck disable=SC2016
  setsid bash -c '
    log=$1; shift
    exec </dev/null >>"$log" 2>&1
    for descriptor in /proc/self/fd/*; do
      descriptor=${descriptor##*/}
      if ((descriptor > 2)); then exec {descriptor}>&-; fi
    done
    umask 022
    cd /
    unset KUBECONFIG HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy
    exec "$@"' daemon "$RUN_DIR/logs/$name.log" "${argv[@]}" &
  pid=$!
  disown "$pid"
  echo "$pid $(start_time "$pid")" >"$RUN_DIR/pids/$name"
}

# Waits for a command to succeed; gives up early when the process that it depends on ends.
await_process() { # name, seconds, what is waited for, command...
  local name=$1 seconds=$2 what=$3
  shift 3
  if await "$seconds" succeeds_or_died "$name" "$@" && is_alive "$name"; then return 0; fi
  say "the last lines of $RUN_DIR/logs/$name.log:"
  tail -n 12 "$RUN_DIR/logs/$name.log" | cut -c 1-300 >&2
  if is_alive "$name"; then die "$name runs, but after $seconds s: no $what"; else die "$name ended before: $what"; fi
}

succeeds_or_died() { # name, command...
  is_alive "$1" || return 0
  "${@:2}"
}

# SIGTERM, then SIGKILL when the time is over.
stop_process() { # name, seconds
  local pid
  if pid=$(pid_of "$1"); then
    kill "$pid" 2>/dev/null || true
    if ! await "$2" is_gone "$1"; then
      kill -KILL "$pid" 2>/dev/null || true
      await 60 is_gone "$1" || die "$1 (process $pid) does not end, not even by SIGKILL; see: cat /proc/$pid/stack"
    fi
  fi
  rm -f "$RUN_DIR/pids/$1"
}

is_gone() { ! is_alive "$1"; }

restart_process() { # name, seconds to end
  [[ -s $RUN_DIR/commands/$1 ]] || die "no process '$1' was ever started here; there are: $(process_names)"
  stop_process "$1" "$2"
  spawn "$1"
}

process_names() {
  local file
  for file in "$RUN_DIR"/commands/*; do
    if [[ -e $file ]]; then printf '%s ' "${file##*/}"; fi
  done
}

# Logs are appended to, so that cutting them below a running writer is safe. 64 MiB: weeks of an idle cluster.
trim_logs() {
  find "$RUN_DIR/logs" -name '*.log' -size +64M -exec truncate -s 0 {} + 2>/dev/null || true
}
