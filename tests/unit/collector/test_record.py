from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_collector.record import parse

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = ["tag", "shape", "stage", "epoch", "file", "error", "seq"]


def good(writer, **more):
    shape = writer.shape(4, lora="nolora")
    line = {"tag": shape.tag, "shape": shape.to_json(), "stage": "capture", "epoch": 1, "file": "000003.json"}
    return {**line, "error": None, **more}


@given(st.dictionaries(st.sampled_from(fields), json_values))
def test_any_line_becomes_a_record_that_names_no_foreign_place(line) -> None:
    record = parse(3, line)
    assert record.file is None or record.file.strip("0123456789") == ".json"
    if record.file is not None:
        assert record.key.startswith(("traces/rank-00003/", "replay/rank-00003/"))
        assert ".." not in record.key.split("/")
    else:
        assert record.error


def test_a_line_that_is_whole_gives_the_key_of_its_object(writer) -> None:
    record = parse(3, good(writer))
    assert (record.key, record.error) == ("traces/rank-00003/Decode__bs_4__lora-nolora.json.gz", None)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tag": "../../x"}, "tag"),
        ({"tag": None}, "tag"),
        ({"stage": "other"}, "stage 'other'"),
        ({"file": "/etc/passwd"}, "no trace of this rank"),
        ({"file": "000003.json/../x"}, "no trace of this rank"),
        ({"file": 3}, "no trace of this rank"),
        ({"file": None}, "neither a trace nor an error"),
        ({"file": None, "error": "x" * 9000}, "xxx"),
    ],
)
def test_a_bad_line_is_a_loss_that_says_why(writer, more, said) -> None:
    record = parse(3, good(writer, **more))
    assert record.file is None
    assert said in record.error
    assert len(record.error) <= 512


@pytest.mark.parametrize("more", [{"epoch": 2}, {"shape": {"runner": "Other"}}, {"shape": None}])
def test_a_record_that_contradicts_itself_is_delivered_and_marked(writer, more) -> None:
    record = parse(3, good(writer, **more))
    assert record.file == "000003.json"
    assert "disagree" in record.error


def test_a_line_that_is_no_object() -> None:
    assert "no JSON object" in parse(3, None).error
