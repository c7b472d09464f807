"""A clinic's first afternoon: from a table of its own to predictions, by printed commands alone."""

import shlex

import numpy as np
from commands import call
from scipy.special import expit


def hospital(path, patients=900):
    """Visits as a hospital exports them: semicolons, decimal commas, gaps, dates, codes; few die."""
    random = np.random.default_rng(8)
    of = random.permutation(np.repeat(np.arange(patients), 2))
    stage, age = random.integers(0, 5, len(of)), random.normal(64, 11, len(of))
    lactate, frail = random.gamma(2, 1, len(of)), random.random(patients)[of]
    lactate[stage == 1] = np.nan  # not taken
    risk = expit(1.6 * (stage == 3) + 0.05 * (age - 64) + 0.5 * np.nan_to_num(lactate) + frail - 3.8)
    died = np.where(random.random(len(of)) < risk, "yes", "no")
    when = np.datetime64("2021-01-01") + random.integers(0, 900, len(of))
    rows = [
        f"P{who:05d};{day};{years:.1f};{grade}.0;{acid:.2f};{'fm'[who % 2]};{outcome}"
        for who, day, years, grade, acid, outcome in zip(of, when, age, stage, lactate, died, strict=True)
    ]
    header = "patient;admitted;age;stage;lactate;sex;died"
    path.write_text("\n".join([header, *rows]).replace(".", ",").replace("nan", "") + "\n")


def follow(line):
    """Give a printed command."""
    program, *words = shlex.split(line)
    assert program == "pate"
    return call(*words)


def printed(text, start):
    (line,) = (line for line in text.splitlines() if line.startswith(start))
    return line[len(start) :].strip()


def test_printed_commands_lead_from_a_table_to_predictions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    hospital(tmp_path / "visits.csv")
    assert call("inspect", "visits.csv") == 0
    seen = capsys.readouterr().out
    assert "stage (0, 1, 2, 3, 4)" in seen and "patient (a guess" in seen and "lactate 2" in seen
    assert follow(printed(seen, "next:")) == 0
    line = printed(capsys.readouterr().out, "next: ")
    own = "--voters sums --steps 1 --seed 1 --out run --by-group sex"
    assert "--by user" in line and follow(f"{line} {own}") == 0
    told = capsys.readouterr()
    assert "warning: delta" not in told.err and "delta=" not in told.err
    assert "Public labels alone are expected" in told.err and "AUROC" in told.out
    assert follow(printed(told.out, "next: ") + " --out labels.csv") == 0
    header, *rows = (tmp_path / "labels.csv").read_text().splitlines()
    assert header == "row,label,p_no,p_yes" and len(rows) == 180  # a patient has two rows, so none is an id
    risk = np.array([float(row.split(",")[3]) for row in rows])
    died = np.array([line.endswith("yes") for line in _column("trial/test.csv", "died")])
    assert risk[died].mean() > risk[~died].mean() + 0.05
    owner = (tmp_path / "run/private/report.html").read_text()
    assert "died, from 5 columns" in owner and "By sex, at a threshold of 0.5" in owner
    assert "users, who are drawn as a whole" in owner


def _column(path, name):
    with open(path) as file:
        header, *rows = (line.strip().split(",") for line in file)
    return [row[header.index(name)] for row in rows]
