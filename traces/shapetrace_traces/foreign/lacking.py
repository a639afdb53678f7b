"""What names claim and no capture holds, and what was too large to be held: said of each file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shapetrace_traces.foreign.captures import CUTS, Role, is_combined
from shapetrace_traces.foreign.names import Layout, Name, claims_capture, read_name
from shapetrace_traces.foreign.scan import HIDDEN, LINKED, File, Kind

ROLE_TEXTS = {
    Role.REPLAY: "launches of graphs",
    Role.EAGER: "work without graphs",
    Role.EMPTY: "nothing",
    Role.TOO_LARGE: "too large to judge",
}


def find_lacking(files: Iterable[File], roles: Mapping[str, Role]) -> dict[str, str]:
    """Path -> what its name claims, or its events begin, and no capture of it holds."""
    found = {}
    for file in files:
        text = ""
        if file.kind is Kind.TRACE:
            text = _of_trace(file, roles[file.path])
        elif file.kind is Kind.OTHER and claims_capture(file.path) and file.fault != HIDDEN:
            text = _claims(read_name(file.path), file.fault)
        if text:
            found[file.path] = text
    return found


def _of_trace(file: File, role: Role) -> str:
    index, name = file.index, read_name(file.path)
    left_out = index["leftOut"].get("windows", 0)
    if role is Role.TOO_LARGE:
        return f"is too large to judge: {left_out} launches or GPU activities were left out"
    if role is not Role.CAPTURE:
        own = index.get("metadata")
        is_our_replay = isinstance(own, Mapping) and own.get("stage") == "replay"
        return "" if name.layout is Layout.UNKNOWN or is_our_replay else _claims(name, ROLE_TEXTS[role])
    if not is_combined(index, name):
        return ""
    found = []
    if count := index["unpairedWindows"]:
        found.append(f"{count} begins or ends of a stream capture have no partner: what they held is not told")
    if left_out:
        total = left_out + len(index["windows"])
        found.append(f"is too large to judge: of its {total} stream captures {left_out} were left out")
    return "; ".join(found)


def _claims(name: Name, held: str) -> str:
    shape = name.shape
    claim = f"as captures are ({name.layout.value})" if shape is None else f"as {shape.unit} {shape.size}"
    return f"is named {claim}, and holds no capture: {held}"


def cut_text(left_out: Mapping[str, int]) -> str:
    """What is not known of a capture because its trace is too large; empty where all is."""
    if not left_out:
        return ""
    return "is too large to judge: left out are " + ", ".join(f"{n} {CUTS[key]}" for key, n in left_out.items())


def find_odd(files: Iterable[File]) -> list[str]:
    """What was seen and not looked at, though it may hold captures; and what was read with indulgence."""
    found = []
    for file in files:
        if file.fault in (LINKED, HIDDEN):
            found.append(f"{file.path} is {file.fault}")
        elif file.index.get("lenient"):
            found.append(f"{file.path} is no strict JSON: raw control characters, bytes that are no UTF-8, or NaN")
    return found
