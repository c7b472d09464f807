"""A line of the ledger: what it says comes back, byte for byte, and what no version wrote is refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.accounting.filter import Cost, Filter
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.crowds import NeighbourCounts
from pate_jax.mechanisms.events import Answers
from pate_jax.runs import chain, ledger

BUDGET = Filter(4.0, 1e-5, order=12.5, rdp=3.25, slack=1e-12)
LINE = ledger.Line(
    batch=1,
    event=Answers(ConfidentDiscreteGaussian(200.0, 150.0, 40.0), teachers=250, classes=10, asked=3),
    exact="digest of votes",
    public="digests of ids and inputs",
    noise="digest of noise",
    budget=BUDGET,
    order=12.5,
    cost=Cost(0.125, 1e-30),
    values="3 - 7",
)
CROWD = LINE._replace(
    batch=2,
    event=NeighbourCounts(queries=2, classes=3, votes=2, sigma=20.0),
    exact="digest of table",
    public="digest of public side",
    cost=Cost(0.0625, 1e-30),
    values="3 -1 0 12 7 5",
)
WRITTEN = (
    b'{"artefact": "ledger", "schema": 1, "sequence": 0, "previous": "'
    + b"0" * 64
    + b'", "kind": "release", "batch": 1, "event": {"name": "answers", "mechanism": '
    b'{"name": "confident-discrete-gaussian", "threshold": 200.0, "sigma_threshold": 150.0, "sigma": 40.0}, '
    b'"teachers": 250, "classes": 10, "asked": 3}, "exact": "digest of votes", '
    b'"public": "digests of ids and inputs", "noise": "digest of noise", '
    b'"budget": {"epsilon": 4.0, "delta": 1e-05, "order": 12.5, "rdp": 3.25, "slack": 1e-12}, '
    b'"order": 12.5, "cost": {"rdp": 0.125, "slack": 1e-30}, "values": "3 - 7", "digest": "'
)


def test_a_line_is_written_in_one_form_and_comes_back(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with chain.Writer(path) as book:
        written = ledger.append(book, LINE)
        second = ledger.append(book, LINE._replace(batch=2, budget=None))
    assert path.read_bytes().startswith(WRITTEN)
    assert written == LINE and path.read_bytes().count(b'"budget": null') == 1
    assert ledger.read(path) == [written, second]


FIELDS = list(to_dict(LINE))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


BOTH = pytest.mark.parametrize("line", [LINE, CROWD], ids=["answers", "table"])


def entry(line=LINE, **changes):
    body = {"kind": "release", "sequence": 0, "digest": "0" * 64, **to_dict(line), **changes}
    return json.loads(json.dumps(body))


@BOTH
@given(st.sampled_from(FIELDS), ANYTHING)
def test_a_field_of_another_kind_is_one_sentence(line, tmp_path_factory, field, value):
    """A line whose digest fits can still say anything: somebody may have made a chain of their own."""
    path = tmp_path_factory.getbasetemp() / "ledger.jsonl"
    try:
        found = ledger.parse(entry(line, **{field: value}), path)
    except PateError as error:
        assert "\n" not in str(error)
    else:
        assert to_dict(found)[field] == value


@BOTH
@pytest.mark.parametrize("field", FIELDS)
def test_a_line_that_lacks_a_field_is_refused(tmp_path, field, line):
    lacking = entry(line)
    del lacking[field]
    with pytest.raises(PateError, match=rf"line 1 of .*takes .*{field}"):
        ledger.parse(lacking, tmp_path / "ledger.jsonl")


@pytest.mark.parametrize(
    ("field", "value"),
    [("batch", 0), ("order", True), ("cost", {"rdp": 2.0})],
)
def test_what_cannot_be_is_refused_by_name(tmp_path, field, value):
    with pytest.raises(PateError, match=rf"line 1 of .*ledger\.jsonl has {field}="):
        ledger.parse(entry(**{field: value}), tmp_path / "ledger.jsonl")


@pytest.mark.parametrize(("field", "value"), [("asked", -1), ("teachers", True)])
def test_an_event_that_cannot_be_is_refused_by_name(tmp_path, field, value):
    event = {**to_dict(LINE.event), field: value}
    with pytest.raises(PateError, match=rf"line 1 of .*ledger\.jsonl.* event.*{field}={value}"):
        ledger.parse(entry(event=event), tmp_path / "ledger.jsonl")


@given(st.lists(st.tuples(st.integers(0, 30_000), st.booleans()), max_size=30))
def test_answers_survive_their_text(given):
    labels = np.array([label if answered else -1 for label, answered in given], np.int32)
    answered = np.array([answered for _, answered in given], bool)
    again = ledger.unpack(ledger.pack(labels, answered))
    np.testing.assert_array_equal(again[0], labels)
    np.testing.assert_array_equal(again[1], answered)
    assert again[0].dtype == np.int32 and again[1].dtype == bool


def test_text_that_is_no_answer_is_refused():
    with pytest.raises(PateError, match="no label"):
        ledger.unpack("3 x")
