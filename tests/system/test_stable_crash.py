"""A list of stable answers that is killed: it goes on with the same noise, and is charged once."""

import pytest
from test_crash import Crash, Mortal
from test_stable_runs import ask, given

from pate_jax.runs import ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage


def test_a_killed_list_goes_on_with_the_same_noise_and_is_charged_once(tmp_path, monkeypatch):
    whole, calls = RunDirectory(tmp_path / "whole"), Mortal()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "os", calls)
        ask(whole, 2)
    paid = [line.cost for line in ledger.lines(whole.ledger)]
    for at in range(1, len(calls.calls), 13):
        run = RunDirectory(tmp_path / str(at))
        with monkeypatch.context() as patch:
            patch.setattr(storage, "os", Mortal(at))
            with pytest.raises(Crash):
                ask(run, 2)
        shown = {line.batch: line.values for line in ledger.lines(run.ledger)}
        for batch in (1, 2):
            if run.answers_of(batch).exists():
                left = storage.read_arrays(run.answers_of(batch), "answers")
                assert shown[batch] == ledger.pack(left["labels"], left["answered"])
        ask(run, 2)
        assert given(run) == given(whole)
        assert [line.cost for line in ledger.lines(run.ledger)] == paid
