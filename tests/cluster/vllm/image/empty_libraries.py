"""Empty stand-ins for the CUDA libraries that PyPI's torch is linked with, so that it can be imported without them.

    empty_libraries.py FOLDER       torch/lib; they are made in it

PyPI has one build of torch for Linux, with CUDA: importing it needs a dozen libraries of together 3 GB, none of which
does anything on a machine without a GPU. Each one that is not there becomes a library of the same name, with the
symbols that torch's own libraries want and no code: a call ends the process.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

VENDOR = re.compile(r"lib(cu|nccl|nv)\w*\.so[.\d]*")
SYMBOL = re.compile(r"(cu|nccl|nv)\w+")
DRIVER = "libcuda.so.1"  # opened when it is needed; an empty one would be taken for a machine with a GPU


def output_of(*command: str | Path) -> str:
    """What a program prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def is_missing(binary: Path) -> set[str]:
    """The vendor's libraries that the loader does not find for ``binary``."""
    found = re.findall(r"^\s*(\S+) => not found", output_of("ldd", binary), re.MULTILINE)
    return {name for name in found if VENDOR.fullmatch(name)} - {DRIVER}


def versions_of(binary: Path) -> dict[str, set[str]]:
    """Library -> the symbol versions that ``binary`` wants of it."""
    wanted: dict[str, set[str]] = defaultdict(set)
    library = ""
    for line in output_of("readelf", "-VW", binary).splitlines():
        if match := re.search(r"Version: 1  File: (\S+)", line):
            library = match[1]
        elif match := re.search(r"Name: (\S+)  Flags: none  Version: \d+", line):
            wanted[library].add(match[1])
    return wanted


def make(library: Path, versioned: dict[str, set[str]], plain: set[str]) -> None:
    """A library with these symbols, by version and without one."""
    names = sorted(plain.union(*versioned.values()))
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "empty.c"), Path(folder, "versions")
        source.write_text("".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in names))
        script.write_text(
            "".join(
                f"{version} {{ global: {' '.join(f'{name};' for name in sorted(found))} }};\n"
                for version, found in sorted(versioned.items())
            )
        )
        options = [f"-Wl,--version-script={script}"] if versioned else []
        output_of("gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}", *options, "-o", library, source)


def main(folder: Path) -> None:
    """Make what is missing for the libraries in ``folder``."""
    binaries = sorted(folder.glob("*.so"))
    missing = set().union(*map(is_missing, binaries))
    versions: dict[str, set[str]] = defaultdict(set)
    symbols: dict[str, set[str]] = defaultdict(set)
    for binary in binaries:
        for library, wanted in versions_of(binary).items():
            versions[library] |= wanted
        for name, _, version in re.findall(r" U (\w+)(@(\S+))?", output_of("nm", "-D", "--undefined-only", binary)):
            symbols[version].add(name)
    # which library has a symbol without a version is written nowhere: each gets all of them
    plain = {name for name in symbols[""] if SYMBOL.fullmatch(name)}
    for library in sorted(missing):
        make(folder / library, {version: symbols[version] for version in versions[library]}, plain)
        print(f"empty: {library}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
