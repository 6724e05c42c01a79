"""Two hashes decide what is measured again. One that moves with a comment wastes days; one that stays when a variable
changes publishes a number for another server."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gauntlet.errors import GauntletError
from gauntlet.identity import canonical, conditions_id, difference, digest, joined, spec_id

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
DOCUMENTS = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3), max_leaves=12
)


def shuffled(document):
    """The same document with every mapping built the other way round and every list as a tuple."""
    if isinstance(document, dict):
        return {key: shuffled(document[key]) for key in reversed(list(document))}
    return tuple(map(shuffled, document)) if isinstance(document, list) else document


@given(DOCUMENTS)
def test_order_and_kind_of_sequence_do_not_matter(document):
    assert canonical(document) == canonical(shuffled(document))


@given(DOCUMENTS)
def test_a_document_keeps_its_identity_on_its_way_through_a_file(document):
    assert digest(json.loads(json.dumps(document))) == digest(document)
    assert digest(json.loads(canonical(document))) == digest(document)


@given(DOCUMENTS, DOCUMENTS)
def test_there_is_a_difference_exactly_where_the_hashes_differ(a, b):
    assert bool(difference(a, b)) == (digest(a) != digest(b))


@given(st.dictionaries(st.text(), DOCUMENTS, max_size=4))
def test_joined_parts_are_the_document(document):
    assert joined({key: canonical(value) for key, value in document.items()}) == canonical(document)


def test_a_number_has_one_form():
    assert canonical({"temperature": 0.0}) == canonical({"temperature": 0}) == b'{"temperature":0}'
    assert canonical(-0.0) == b"0"
    assert canonical(True) != canonical(1)
    assert difference({"a": True}, {"a": 1}) == [("a", True, 1)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: "x"}, b"bytes", {"a": [{"b": object()}]}])
def test_what_json_does_not_have_is_refused(value):
    with pytest.raises(GauntletError, match="no identity"):
        canonical(value)


def test_a_difference_names_the_path_and_both_values():
    a = {"environment": {"NCCL_ALGO": "Ring"}, "gpus": [{"vbios": "1"}, {"vbios": "2"}], "x": None}
    b = {"environment": {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"}, "gpus": [{"vbios": "1"}, {"vbios": "3"}]}
    assert difference(a, b) == [
        ("environment.NCCL_ALGO", "Ring", "Tree"),
        ("environment.NCCL_PROTO", None, "LL"),
        ("gpus[1].vbios", "2", "3"),
        ("x", None, None),  # null and absent are two documents
    ]


def test_the_identities_are_64_hex_and_do_not_change_between_releases_of_ours():
    """Results outlive the program: this hash is written in them."""
    assert spec_id({"b": [1, "ä"], "a": None}) == conditions_id({"a": None, "b": (1.0, "ä")})
    assert spec_id({"b": [1, "ä"], "a": None}) == "5d4c789751acdad9ba305072d1a6ccdc5864fd7c7a1bcc0f38a794e5a4417e02"
