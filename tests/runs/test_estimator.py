"""`PateClassifier`: a run in scikit-learn's words."""

import copy
import importlib.util
import math
import pickle
import secrets
import shutil
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from test_own_data import STUDENT, people

import pate_jax
from pate_jax import PateClassifier, PateError, PateWarning, accounting, models
from pate_jax.accounting.costs import Tables
from pate_jax.accounting.exact import counts
from pate_jax.data import Part, Preprocessing
from pate_jax.errors import SharedInputs
from pate_jax.mechanisms.crowds import NeighbourCounts
from pate_jax.runs import anchors, estimator, own_data, register, registration, samples
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.own_data import Result
from pate_jax.runs.plans import Plan
from pate_jax.student import Student
from pate_jax.system import storage

FEATURES = ("pulse", "town", "seen")
PRIVATE, PUBLIC = people(90, 1), people(40, 2)
X, X_PUBLIC = ({name: part[name] for name in FEATURES} for part in (PRIVATE, PUBLIC))
X["town"] = np.array(["Atlantis", *X["town"][1:]])  # a word of one private record


@pytest.fixture(autouse=True)
def _nothing_fitted(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def registered():
    """The runs of the register."""
    file = anchors.default()
    return [*register.read(file).entries.values()] if file.exists() else []


@pytest.fixture(scope="module")
def model():
    chosen = PateClassifier(4.0, classes=["yes", "no"], student=STUDENT)
    return chosen.fit(X, PRIVATE["sick"], X_PUBLIC, ids=PRIVATE["key"])


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What `fit` asks of `pate_jax.run`, which answers with a student of three numbers."""
    calls = []

    def run(private, public, **settings):
        calls.append({"private": private, "public": public, **settings})
        root = RunDirectory(settings["out"])
        (root.data).mkdir(parents=True, exist_ok=True)
        root.secret.draw(settings["seed"])
        if isinstance(private.get("inputs"), np.ndarray):
            part = Part(private["inputs"], None, np.arange(len(private["inputs"])).astype(str))
            spends = Plan(
                (Tables(counts.mu_for(settings["epsilon"], settings["delta"]), "neighbours"),), "record"
            )
            dataset = SimpleNamespace(private=part, columns=(), ids_are="rows", scan=None, unread=())
            registration.enter(root, spends, lambda: dataset)
        count = settings["classes"] if isinstance(settings["classes"], int) else len(settings["classes"])
        net = models.build("table", input_shape=(3,), classes=count)
        scaling, names = Preprocessing((0.0,) * 3, (1.0,) * 3), tuple(map(str, range(count)))
        Student(net.init(jax.random.key(1)), net.description, scaling, names, 1.0, "float32").save(
            root.student
        )
        release = NeighbourCounts(queries=80, classes=count, votes=1, sigma=10.0)
        statement = accounting.crowd_statement([release], settings["delta"], voters=90, private=True)
        storage.write_json(root.public_statement, "statement", statement.publishable())
        if not root.ledger.exists():
            root.ledger.write_bytes(secrets.token_bytes(16))
        return Result(root.root, {})

    monkeypatch.setattr(own_data, "run", run)
    return calls


def numbers(count, seed):
    return np.random.default_rng(seed).normal(size=(count, 3))


def declared(**more):
    return PateClassifier(classes=[0, 1], X_public=numbers(20, 9), **more)


def test_a_fit_is_a_run(model):
    assert is_classifier(model) and model.classes_.tolist() == ["no", "yes"]
    assert model.n_features_in_ == 3 and model.feature_names_in_.tolist() == list(FEATURES)
    assert model.epsilon_ == model.statement_.headline.epsilon <= 4.0
    assert model.statement_.relation == "record" and model.statement_.private
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (90, 2) and np.allclose(probabilities.sum(1), 1)
    assert np.array_equal(model.predict(X) == "yes", probabilities[:, 1] > probabilities[:, 0])
    assert model.score(X, PRIVATE["sick"]) == np.mean(model.predict(X) == PRIVATE["sick"])


def test_rows_come_by_name_or_in_the_order_of_the_columns(model):
    more = {"other": PRIVATE["key"], **dict(reversed(X.items()))}
    rows = np.array([*map(list, zip(*(X[name] for name in FEATURES), strict=True))], object)
    assert np.array_equal(model.predict_proba(more), model.predict_proba(X))
    assert np.array_equal(model.predict_proba(rows), model.predict_proba(X))
    with pytest.raises(PateError, match="X has 2 features, but PateClassifier is expecting 3 features"):
        model.predict(rows[:, :2])


def test_a_fitted_estimator_and_its_folder_hold_no_private_record(model):
    public = {"classes_", "n_features_in_", "feature_names_in_", "student_", "statement_", "epsilon_"}
    assert set(vars(model)) - set(model.get_params()) == {*public, "directory_", "_columns"}
    assert [path.name for path in model.directory_.iterdir()] == ["release"]
    content = b"".join(path.read_bytes() for path in model.directory_.rglob("*.*") if path.is_file())
    shown = pickle.dumps(model) + content
    assert b"person-1-" not in shown and b"Atlantis" not in shown and b"Oslo" in shown
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X_PUBLIC), model.predict_proba(X_PUBLIC))


@pytest.mark.parametrize("shown", [False, True])
def test_a_pickle_holds_public_inputs_only_where_these_may_go_out(model, shown):
    """A parameter of scikit-learn's is kept with the estimator, which is published as a whole."""
    fitted = copy.copy(model).set_params(show_public=shown)
    fitted.X_public = {"note": ["remark zq"]}
    assert (b"remark zq" in pickle.dumps(fitted)) == shown and fitted.X_public is not None
    assert b"remark zq" in pickle.dumps(PateClassifier(X_public=fitted.X_public))  # on its way to be fitted


def test_a_clone_has_the_parameters_and_nothing_learned(model):
    found = clone(model)
    assert found.get_params()["student"] == STUDENT and not hasattr(found, "classes_")
    assert found.set_params(epsilon=0.5).epsilon == 0.5
    with pytest.raises(pate_jax.PateError, match="is not fitted yet"):
        found.predict(X)


LABELS = {
    "words": (["yes", "no"], ["no", "yes"], ["no", "yes"]),
    "negative numbers": ([1, -1], [-1, 1], ["-1", "1"]),
    "truth": ([True, False], [False, True], ["False", "True"]),
    "whole numbers as floats": ([2.0, 0.0], [0.0, 2.0], ["0.0", "2.0"]),
    "a comma": (["b", "a,c"], ["a,c", "b"], 2),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_come_back_as_given(asked, kind):
    (high, low), ordered, sent = LABELS[kind]
    y = np.where(np.arange(30) % 3 == 0, low, high)
    fitted = PateClassifier(classes=[high, low]).fit(numbers(30, 1), y, numbers(20, 2))
    assert asked[0]["classes"] == sent and fitted.classes_.tolist() == ordered
    given = np.asarray(asked[0]["private"]["labels"])
    assert given[:2].tolist() == ([0, 1] if sent == 2 else [sent[0], sent[1]])
    assert fitted.predict(numbers(5, 3)).dtype.kind == y.dtype.kind


def test_what_the_run_is_asked(asked):
    y, settings = np.arange(30) % 2, {"epsilon": np.float64(0.5), "delta": 1e-6, "student": "ridge"}
    with pytest.warns(samples.DataConversionWarning):
        declared(**settings, voters="neighbours").fit(numbers(30, 1).tolist(), y[:, None].tolist())
    call = asked[0]
    assert (call["epsilon"], type(call["epsilon"]), call["delta"]) == (0.5, float, 1e-6)
    assert call["voters"] == "neighbours" and call["student"].method == "ridge" and call["seed"] is None
    assert np.array_equal(call["private"]["inputs"], numbers(30, 1))
    assert np.array_equal(call["public"]["inputs"], numbers(20, 9)) and "teachers" not in call
    declared(voters="teachers", teachers=7).fit(numbers(30, 2), y, numbers(10, 3), ids=range(30))
    assert asked[1]["teachers"] == 7 and len(asked[1]["public"]["inputs"]) == 10
    assert asked[1]["private"]["ids"].tolist() == [str(row) for row in range(30)]


@pytest.mark.parametrize("row", [["0.5", 1.0, 2], [None, 1.0, 2.0]])
def test_one_record_does_not_decide_whether_columns_are_words(asked, row):
    """Numbers among the public inputs make numbers of all; what is no number is refused."""
    usual = numbers(29, 1)
    if row[0] is None:
        with pytest.raises(PateError, match="X holds NaN or infinity in 1 records"):
            declared().fit([*usual.tolist(), row], [0, 1] * 15)
        return
    declared().fit([*usual.tolist(), row], [0, 1] * 15)
    assert np.array_equal(asked[0]["private"]["inputs"], [*usual, [0.5, 1.0, 2.0]])


def test_a_table_keeps_its_own_columns(asked):
    table = {"labels": ["a"] * 20, "ids": [1.5] * 20, "dose": [None] * 20}
    PateClassifier(classes=[0, 1]).fit(table, [0, 1] * 10, table, ids=range(20))
    private = asked[0]["private"]
    assert list(private) == ["labels", "ids", "dose", "labels_", "ids_"]
    assert (asked[0]["label"], asked[0]["id"]) == ("labels_", "ids_") and private["labels_"][1] == "1"


def test_a_seed_and_classes_of_the_labels_warn_once(asked):
    y = np.arange(30) % 2
    with pytest.warns(PateWarning) as told:
        PateClassifier(random_state=np.int64(3)).fit(numbers(30, 1), y, numbers(20, 2))
    assert sorted(str(one.message).split()[0] for one in told) == ["classes", "random_state=3"]
    assert asked[0]["seed"] == 3 and type(asked[0]["seed"]) is int


def test_a_seeded_fit_says_that_it_is_not_private():
    seeded = PateClassifier(4.0, classes=["no", "yes"], student=STUDENT, random_state=3)
    with pytest.warns(PateWarning, match="NOT private"):
        seeded.fit(X, PRIVATE["sick"], X_PUBLIC)
    assert not seeded.statement_.private and "NOT" in seeded.statement_.warning and not registered()


def epsilon_of(fits, epsilon, delta):
    """Gaussian-DP by its definition: the epsilon of so many fits of this epsilon each."""

    def spent(mu, level):
        return norm.cdf(mu / 2 - level / mu) - math.exp(level) * norm.cdf(-mu / 2 - level / mu)

    def least(low, high, small_enough):
        for _ in range(80):
            low, high = (
                ((low + high) / 2, high) if small_enough((low + high) / 2) else (low, (low + high) / 2)
            )
        return low

    mu = least(1e-6, 50.0, lambda mu: spent(mu, epsilon) <= delta) * math.sqrt(fits)
    return least(0.0, 100.0, lambda level: spent(mu, level) > delta)


def test_cross_validation_warns_of_what_all_fits_cost(asked):
    with pytest.warns(PateWarning) as told:
        scores = cross_val_score(declared(epsilon=2.0), numbers(60, 1), np.arange(60) % 2, cv=4)
    assert len(scores) == len(asked) == 4 and len(told) == 3
    for fits, warning in enumerate(told, 2):
        wanted = math.ceil(100 * epsilon_of(fits, 2.0, 1e-5)) / 100
        assert f"this is run {fits} " in str(warning.message)
        assert f"epsilon {wanted:.2f} at delta 1e-05" in str(warning.message)


def test_a_grid_search_counts_its_candidates_and_its_last_fit(asked):
    grid = {"epsilon": [0.5, 1.0]}
    with pytest.warns(PateWarning) as told:
        search = GridSearchCV(declared(), grid, cv=2).fit(numbers(60, 1), np.arange(60) % 2)
    assert "this is run 5 on the same private records" in str(told[-1].message)
    assert len(asked) == 5 and search.best_estimator_.classes_.tolist() == [0, 1]


def test_a_warning_made_an_error_stops_a_fit_before_it_spends(asked):
    declared().fit(numbers(30, 1), np.arange(30) % 2)
    with warnings.catch_warnings(action="error"), pytest.raises(PateWarning):
        declared().fit(numbers(30, 1), np.arange(30) % 2)
    assert not RunDirectory(asked[1]["out"]).ledger.exists()


def test_other_records_and_seeded_fits_are_not_added_up(asked):
    y = np.arange(30) % 2
    declared().fit(numbers(30, 1), y)
    declared().fit(numbers(30, 2), y)
    with pytest.warns(PateWarning, match="NOT private"):
        declared(random_state=1).fit(numbers(30, 3), y)
    declared().fit(numbers(30, 3), y)
    assert len(asked) == 4
    with pytest.warns(PateWarning, match="this is run 2 "):
        declared().fit(np.concatenate([numbers(20, 4), numbers(30, 2)[:10]]), y)


def test_of_two_fits_in_threads_one_is_told_of_the_other(asked):
    """Each had looked before the other was counted."""
    both = threading.Barrier(2)

    def fit():
        both.wait()
        declared().fit(numbers(30, 1), np.arange(30) % 2)

    with pytest.warns(PateWarning) as told:
        threads = [threading.Thread(target=fit) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [str(one.message)[:13] for one in told] == ["this is run 2"] and len(registered()) == 2


def test_a_run_that_is_kept_is_read_again_and_not_counted_again(asked, tmp_path):
    kept = declared(directory=tmp_path / "run")
    for _ in range(2):
        kept.fit(numbers(30, 1), np.arange(30) % 2)
    assert kept.directory_ == tmp_path / "run" and RunDirectory(tmp_path / "run").data.exists()
    assert len(registered()) == 1
    shutil.rmtree(tmp_path / "run")
    with pytest.warns(PateWarning, match="this is run 2 "):  # a release of its own at the same place
        kept.fit(numbers(30, 1).astype(np.float32), np.arange(30) % 2)


def test_a_fit_that_fails_leaves_no_private_file(monkeypatch, asked):
    folders = []

    def broken(private, public, **settings):
        folders.append(Path(settings["out"]))
        RunDirectory(settings["out"]).data.mkdir(parents=True)
        raise RuntimeError

    monkeypatch.setattr(own_data, "run", broken)
    with pytest.raises(RuntimeError):
        declared().fit(numbers(30, 1), np.arange(30) % 2)
    assert not list(folders[0].iterdir()) and not registered()


NAN = np.where(np.arange(90).reshape(30, 3) == 7, np.nan, numbers(30, 1))
BAD = {
    "no public inputs": ({"X_public": None}, "X_public is not given: the student learns from public inputs"),
    "other widths": (
        {"X_public": np.ones((9, 2))},
        "X_public has 2 features and X has 3: give both the same. A transformer before this step",
    ),
    "a transformer before it": (
        {"X": numbers(30, 1), "X_public": {"age": [1.0] * 9, "town": ["Oslo"] * 9}},
        "X_public has 2 features and X has 3: give both the same. A transformer before this step",
    ),
    "other columns": (
        {"X": {"age": range(30), "dose": range(30), "sex": ["f"] * 30}, "X_public": {"age": range(9)}},
        "X_public has 1 features and X has 3: give both the same; X_public lacks dose, sex",
    ),
    "one class": ({"classes": None, "y": [1] * 30}, "y shows only one class, [1]: name at least two"),
    "one class declared": ({"classes": [1]}, "classes names only one class"),
    "a class twice": ({"classes": [0, 1, 1]}, "must list each class once"),
    "an undeclared label": ({"y": [0, 1, 2] * 10}, "y has the label 2, which is not one of classes=[0, 1]"),
    "no labels": ({"y": None}, "requires y to be passed, but the target y is None"),
    "too few labels": ({"y": [0, 1]}, "y has 2 labels for the 30 records of X"),
    "a missing label": (
        {"y": [0.0, np.nan] * 15},
        "y contains NaN, infinity or a missing label (first at row 1)",
    ),
    "numbers for labels": ({"classes": None, "y": numbers(10, 1).ravel()}, "Unknown label type: continuous"),
    "two columns of labels": ({"y": np.zeros((30, 2))}, "y should be a 1d array"),
    "mixed labels": ({"classes": None, "y": np.array([1, "a"] * 15, object)}, "labels of several kinds"),
    "NaN": ({"X": NAN}, "X holds NaN or infinity in 1 records (first at row 2)"),
    "public NaN": ({"X_public": NAN}, "X_public holds NaN or infinity in 1 records"),
    "infinity": ({"X": np.where(np.isnan(NAN), np.inf, NAN)}, "X holds NaN or infinity"),
    "no records": ({"X": np.ones((0, 3)), "y": []}, "X has 0 sample(s) (shape=(0, 3))"),
    "one dimension": ({"X": np.ones(30)}, "Expected 2D array, got 1D array instead"),
    "ragged rows": ({"X": [[1, 2], [1]] * 15}, "X has rows of different lengths"),
    "too few ids": ({"ids": ["a"]}, "ids has 1 ids for the 30 records of X"),
    "epsilon 0": ({"epsilon": 0}, "epsilon=0.0 must be a finite number above 0"),
    "epsilon in words": ({"epsilon": "1"}, "epsilon='1' must be a number"),
    "delta 1": ({"delta": 1}, "delta=1.0"),
    "a seed in words": ({"random_state": "x"}, "random_state='x' must be None or a whole number"),
    "a student": ({"student": "forest"}, "student method='forest' must be one of"),
    "voters": ({"voters": "trees"}, "voters='trees' must be auto, teachers, neighbours or sums"),
    "teachers of a crowd": ({"teachers": 9, "voters": "sums"}, "--teachers belongs to teachers"),
    "private rows": ({"X_public": numbers(30, 1)}, "X_public: 30 of 30 inputs are private ones too"),
    "too few public inputs": ({"X_public": np.ones((1, 3))}, "public inputs"),
    "kept without classes": (
        {"classes": None, "directory": "run"},
        "classes is not given: a run that is kept",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case, tmp_path, monkeypatch):
    change, said = BAD[case]
    monkeypatch.chdir(tmp_path)
    given = {"X": numbers(30, 1), "y": np.arange(30) % 2, "X_public": numbers(20, 2), "ids": None, **change}
    settings = {name: given.pop(name) for name in change if name not in ("X", "y", "X_public", "ids")}
    with warnings.catch_warnings(action="ignore"), pytest.raises(PateError) as caught:
        PateClassifier(**{"classes": [0, 1], **settings}).fit(**given)
    told = str(caught.value)
    assert said in told and "\n" not in told and "private/data" not in told
    assert not registered() and not any(tmp_path.iterdir())


def test_coincidences_are_declared_by_a_parameter(asked):
    with pytest.raises(PateError, match="declare that with equal_rows_are_coincidences=True"):
        from pate_jax.runs.estimator import _of_fit

        raise PateError(_of_fit("declare that with --equal-rows-are-coincidences", RunDirectory("run")))
    declared(equal_rows_are_coincidences=True).fit(numbers(30, 1), np.arange(30) % 2)
    assert asked[0]["equal_rows_are_coincidences"] is True


def test_a_check_finds_what_one_fold_would_be_refused_for_before_any_is_paid_for():
    X, y = numbers(60, 1), np.arange(60) % 2
    shared = PateClassifier(classes=[0, 1], X_public=np.vstack([numbers(20, 9), X[:1]]))
    with pytest.raises(SharedInputs, match=r"^X_public: 1 of 21 inputs are private ones too") as refused:
        shared.check(X, y)
    with pytest.raises(SharedInputs, match=r"check.X, y., with all records, finds this"):
        shared.fit(X[:30], y[:30])
    declared().check(X, y)
    assert not registered() and "finds this" not in str(refused.value)
    left = Path(estimator._scratch().name).rglob("*")
    assert not [path for path in left if path.is_file() and "private" in path.parts]


def test_numbers_and_words_in_either_form():
    assert samples.like({"a": ["1", ""]}, None, "X").tolist()[0] == [1.0]
    with pytest.raises(PateError, match="X has 'Oslo' in the column 'a', where numbers are wanted"):
        samples.like({"a": ["Oslo"]}, None, "X")
    with pytest.raises(PateError, match="X is sparse"):
        import scipy.sparse

        samples.inputs(scipy.sparse.eye(3), "X")


def test_a_transformer_sees_public_inputs_alone_and_all_rows_pass_through_it(asked, capsys):
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    X = pd.DataFrame({"age": np.arange(30.0), "town": ["Oslo", "Rome", "Atlantis"] * 10})
    public = pd.DataFrame({"age": np.arange(9.0) + 0.5, "town": ["Oslo", "Rome", "Oslo"] * 3})
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    wanted = ColumnTransformer([("line", StandardScaler(), ["age"]), ("words", words, ["town"])])
    model = PateClassifier(classes=[0, 1], X_public=public, transformer=wanted, verbose=False)
    model.fit(X, np.arange(30) % 2)
    assert not hasattr(wanted, "transformers_")  # a copy was fitted
    (made,) = asked
    assert made["private"]["inputs"].shape == (30, 3)  # and knows no Atlantis
    age = (np.arange(30) - public["age"].mean()) / public["age"].std(ddof=0)
    np.testing.assert_allclose(made["private"]["inputs"][:, 0], age)
    np.testing.assert_allclose(made["public"]["inputs"][:, 0].mean(), 0, atol=1e-9)
    assert model.predict(X).shape == (30,) and capsys.readouterr().err == ""
    names = [f"p{31 * row % 97}" for row in range(30)]
    people, shared = X.set_axis(names), public.set_axis(names[:9])
    with pytest.raises(PateError, match="ids"):  # of an index that the transformer would drop
        PateClassifier(classes=[0, 1], transformer=wanted).fit(people, np.arange(30) % 2, shared)


def test_without_scikit_learn_there_is_a_stand_in(monkeypatch, asked):
    """The same file, loaded where scikit-learn is not found, gives a base with the same parameters."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    spec = importlib.util.spec_from_file_location("alone", samples.__file__)
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    assert alone.Base.__mro__[1:] == (object,) and issubclass(alone.NotFitted, AttributeError)
    body = {
        name: value for name, value in vars(PateClassifier).items() if name not in ("__dict__", "__weakref__")
    }
    kind = type("PateClassifier", (alone.Base,), body)
    assert kind(0.5).get_params() == PateClassifier(0.5).get_params()
    fitted = (
        kind(classes=[0, 1]).set_params(epsilon=2.0).fit(numbers(30, 1), np.arange(30) % 2, numbers(9, 2))
    )
    labels = fitted.predict(numbers(12, 3))
    assert fitted.score(numbers(12, 3), labels) == 1 and repr(fitted).startswith("PateClassifier(")
    with pytest.raises(PateError, match="depth is no parameter of PateClassifier"):
        fitted.set_params(depth=3)


def test_a_transformer_that_looks_at_rows_together_is_refused():
    """One private record would move what all others become."""
    from sklearn.preprocessing import FunctionTransformer, scale

    random = np.random.default_rng(0)
    X, public = random.normal(size=(60, 3)), random.normal(size=(50, 3))
    model = PateClassifier(classes=[0, 1], transformer=FunctionTransformer(scale), verbose=False)
    with pytest.raises(PateError, match="looks at rows together"):
        model.fit(X, (X[:, 0] > 0).astype(int), public)
