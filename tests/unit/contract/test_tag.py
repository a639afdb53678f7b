"""A tag says its shape, reversibly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_contract.tag import (
    MAX_TAG_BYTES,
    Runner,
    Shape,
    TagError,
    escape,
    sglang_name,
    unescape,
    upstream_alias,
)

TEXT = st.text(min_size=1, max_size=12) | st.text(alphabet="_-~ab/.", min_size=1, max_size=12)
NUMBER = st.none() | st.integers(0, 99)
AXIS = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True).filter(lambda axis: axis != "epoch")


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    runner = Runner(draw(TEXT), draw(NUMBER), draw(NUMBER), draw(NUMBER), draw(NUMBER))
    variants = draw(st.dictionaries(AXIS, TEXT, max_size=3))
    try:
        return Shape(
            runner, draw(st.sampled_from(["bs", "tok"])), draw(st.integers(1, 10**6)), variants, draw(st.integers(1, 9))
        )
    except TagError:  # longer than a tag may be
        return Shape(Runner("R"), "bs", 1)


@given(shapes())
def test_decoding_gives_back_the_shape(shape: Shape) -> None:
    assert Shape.from_tag(shape.tag) == shape
    assert Shape.from_json(shape.to_json(), shape.epoch) == shape


@given(st.text(min_size=1, max_size=30))
def test_escaping_is_reversible_and_never_makes_a_separator(text: str) -> None:
    assert unescape(escape(text)) == text
    assert "__" not in escape(text)
    assert not escape(text).endswith("_")


@given(st.text(max_size=40) | st.from_regex(r"[A-Za-z_~-]{1,9}(__[a-z0-9_~-]{1,9}){1,4}", fullmatch=True))
def test_any_text_is_either_refused_or_the_one_spelling_of_a_shape(text: str) -> None:
    try:
        shape = Shape.from_tag(text)
    except TagError:
        return
    assert shape.tag == text


def test_the_spelling_is_the_documented_one() -> None:
    shape = Shape(
        Runner("Decode_Graph__Runner", draft=1, width=4), "bs", 8, {"lora": "nolora", "attention": "sparse"}, 2
    )
    assert shape.tag == "Decode_Graph_~5fRunner-draft1-w4__bs_8__attention-sparse__lora-nolora__epoch-2"


@pytest.mark.parametrize(
    ("runner", "unit", "size", "variants"),
    [
        ("R", "bs", 0, {}),
        ("R", "bs", True, {}),
        ("R", "BS", 1, {}),
        ("R", "bs", 1, {"epoch": "2"}),
        ("R", "bs", 1, {"a": ""}),
        ("", "bs", 1, {}),
        ("R" * 199, "bs", 1, {}),
    ],
)
def test_a_shape_without_a_tag_is_refused(runner: str, unit: str, size: int, variants: dict[str, str]) -> None:
    with pytest.raises(TagError):
        Shape(Runner(runner), unit, size, variants)


def test_the_alias_is_the_upstream_spelling() -> None:
    plain = Shape(Runner("DecodeCudaGraphRunner"), "bs", 8)
    both = Shape(Runner("DecodeCudaGraphRunner"), "bs", 8, {"lora": "nolora", "attention": "sparse", "stream": "1"})
    assert upstream_alias(plain, 3) == "DecodeCudaGraphRunner_bs_8_rank3"
    assert upstream_alias(both, 0) == "DecodeCudaGraphRunner_bs_8_sparse_nolora_stream_1_rank0"


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("DecodeCudaGraphRunner__bs_8", "DecodeCudaGraphRunner_bs_8_rank3"),
        (
            "DecodeCudaGraphRunner-w4__bs_8__attention-sparse__lora-nolora__stream-1",
            "DecodeCudaGraphRunner_bs_8_sparse_nolora_stream_1_rank3",
        ),
        ("DecodeCudaGraphRunner-draft0__bs_8", "DraftDecodeCudaGraphRunner_bs_8_rank3"),
        ("EAGLEDraftCudaGraphRunner-draft0-step1__bs_8__greedy-greedy", "EAGLEDraftCudaGraphRunner_bs_8_rank3"),
        ("DecodeCudaGraphRunner-w4__tok_8", None),
        ("PrefillCudaGraphRunner__tok_8", None),
        ("NPUGraphRunner__bs_8", None),
        ("Unheard__unknown_8", None),
    ],
)
def test_the_name_of_sglangs_own_trace(tag: str, name: str | None) -> None:
    assert sglang_name(Shape.from_tag(tag), 3) == name


def test_the_longest_tag_has_such_a_name_too() -> None:
    value = "a" * (MAX_TAG_BYTES - len("DecodeCudaGraphRunner-draft0__bs_1__attention-"))
    longest = Shape(Runner("DecodeCudaGraphRunner", draft=0), "bs", 1, {"attention": value})
    assert len(longest.tag) == MAX_TAG_BYTES
    assert sglang_name(longest, 0) == f"DraftDecodeCudaGraphRunner_bs_1_{value}_rank0"
