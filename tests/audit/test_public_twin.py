"""The release speaks of a public twin alone, bit for bit the same whatever the private records are."""

import json
import shutil
from dataclasses import replace

import honest_runs
import numpy as np
import pytest
from commands import call
from test_risk import contents

from pate_jax.audit.attacks import every, public_twin
from pate_jax.audit.attacks.attack import Flags
from pate_jax.data import Part
from pate_jax.ensemble import TeacherConfig
from pate_jax.runs import inputs, pipeline
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release import check
from pate_jax.runs.report import attacks

pytestmark = pytest.mark.usefixtures("without_pictures")

FLAGS = Flags(draws=2000, shadows=32)


def attacked(folder):
    """The release of a copy of a run whose twin was attacked."""
    run = RunDirectory(shutil.copytree(honest_runs.crowd("sums").root, folder / "run"))
    with run.writing():
        found = every.attacked(run, "twin", FLAGS)
    assert found.holds
    return run


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return attacked(tmp_path_factory.mktemp("honest"))


def others(real):
    """Opens the run's data with other people in the private part."""

    def opened(choice, *_):
        dataset, random = real(choice), np.random.default_rng(9)
        part, order = dataset.private, random.permutation(60)
        other = Part(
            -part.inputs[order], (part.labels[order] + 1) % 3, np.array([f"other-{row}" for row in range(60)])
        )
        return replace(dataset, private=other)

    return opened


def of_others(folder, monkeypatch):
    """The same where private records are others, and what was counted of the records is gone."""
    monkeypatch.setattr(inputs, "open_data", others(inputs.open_data))
    monkeypatch.setattr(RunDirectory, "table_of", lambda run, round: run.private / "nothing.npz")
    return attacked(folder)


def test_the_release_is_the_same_whoever_the_private_records_are_of(honest, tmp_path, monkeypatch):
    other = of_others(tmp_path, monkeypatch)
    assert contents(other.release) == contents(honest.release), "the release depends on private records"
    card = (honest.student / "MODEL_CARD.md").read_text()
    assert "with 32 shadow runs of a public twin of this run, in which 27 public inputs" in card
    assert "theory allows at most" in card and "Nothing of this was computed from private records" in card
    assert "shadow runs of a public twin" in honest.public_report.read_text()


def test_a_release_with_the_paragraph_stands_every_check(honest, capsys):
    assert call("verify", honest.release, "--json") == 0
    assert json.loads(capsys.readouterr().out)["failed"] == []
    assert call("verify", honest.root) == 0


SAID = [
    "of 30 labels 9% withstand 1 bad ones among those who vote",
    "loss: with 1 false alarm in 1,000 it finds 0.1%",
    "Attacked by loss with 32 shadow runs on halves of the private records: an advantage of 2.0 points.",
]


@pytest.mark.parametrize("said", SAID)
def test_what_attacks_found_on_private_records_is_refused_in_a_release(honest, tmp_path, said):
    folder = shutil.copytree(honest.release, tmp_path / "release")
    assert check.audit(folder) == []
    card = folder / "student" / "MODEL_CARD.md"
    card.write_text(card.read_text() + said)
    assert any("what an attack found" in fault for fault in check.audit(folder)), "the release may say it"


def test_a_paragraph_with_one_more_word_is_refused(honest):
    text = json.loads(honest.results.read_text())["attacked"]
    assert not list(attacks.beyond(text))
    assert list(attacks.beyond(text.replace("public inputs with", "public and 9 private inputs with")))


def test_a_twin_that_shows_too_much_is_not_told_of(tmp_path, monkeypatch, capsys):
    run = RunDirectory(shutil.copytree(honest_runs.crowd("sums").root, tmp_path / "run"))
    before = contents(run.release)
    monkeypatch.setattr(public_twin.Twin, "holds", False)
    assert call("attack", run.root, "--only", "twin", "--draws", "2000", "--shadows", "24") == 1
    assert "public twin: Attacked by loss; lira" in capsys.readouterr().out
    assert contents(run.release) == before


def of_linear_teachers(folder):
    """A run of linear teachers."""
    pipeline.run(honest_runs.by_teachers(folder / "teachers", teacher=TeacherConfig(net="linear")))
    return RunDirectory(folder / "teachers")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["linear teachers", "neighbours", "steps"])
def test_other_runs_have_twins_of_public_inputs_too(tmp_path, monkeypatch, kind):
    """Their private inputs are out of reach from when the run is done."""
    made = {
        "linear teachers": lambda: of_linear_teachers(tmp_path),
        "neighbours": lambda: honest_runs.crowd("neighbours", "user"),
        "steps": lambda: honest_runs.in_steps(),
    }
    run = made[kind]()
    real = inputs.open_data
    none = lambda choice, *_: replace(real(choice), private=real(choice).private.take([]))  # noqa: E731
    monkeypatch.setattr(inputs, "open_data", none)
    found = public_twin.ATTACK.attacked(run, FLAGS)
    assert found.records == 27 and found.holds and len(found.guesses) == 6
    assert not list(attacks.beyond(found.text().removeprefix("public twin: ")))
