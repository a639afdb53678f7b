"""Without a spool the package does nothing, and does not even import torch."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys, shapetrace_capture
shapetrace_capture.plan([{"size": 0}])
with shapetrace_capture.shape(size=8, unit="bs", lora="nolora") as capture:
    assert capture.watch(print) is print
with shapetrace_capture.shape(size=-1, unit="?!"):
    pass
assert "torch" not in sys.modules
try:
    with shapetrace_capture.shape(size=1):
        raise KeyError("the script's own")
except KeyError:
    print("raised")
"""


def test_a_script_runs_as_if_we_were_not_there() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env={}, capture_output=True, text=True, check=True)
    assert ran.stdout == "raised\n"
    assert ran.stderr == ""


def test_the_launcher_imports_only_the_standard_library_and_ours() -> None:
    code = """
import sys, shapetrace_launcher.__main__
roots = {name.partition(".")[0] for name in sys.modules}
print(sorted(roots - set(sys.stdlib_module_names) - {"__main__", "shapetrace_contract", "shapetrace_launcher"}))
"""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "[]\n"
