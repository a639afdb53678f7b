# The shared object store: SeaweedFS on the bridge, where pods and this machine reach it. s3.py does the work.
# shellcheck shell=bash

S3_ADDRESS=$NODE_1_ADDRESS
S3_PORT=8333

s3_python() {
  local python
  for python in "$REPOSITORY/.venv/bin/python" python3; do
    if command -v "$python" >/dev/null; then
      echo "$python"
      return
    fi
  done
  die "no Python: make venv"
}

run_s3() { "$(s3_python)" -B "$HERE/s3.py" "$@"; }

start_object_store() { run_s3 up --dir "$RUN_DIR/s3" --ip "$S3_ADDRESS" --port "$S3_PORT"; }
stop_object_store() { if [[ -d $RUN_DIR/s3 ]]; then run_s3 down --dir "$RUN_DIR/s3"; fi; }
object_store_answers() { connects "$S3_ADDRESS" "$S3_PORT"; }
