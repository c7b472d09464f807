"""Tasks: workers give what one process gives, a killed worker's item runs again, and errors are sentences."""

import json
import os
import pickle
import platform
import shutil
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import honest_runs
import items
import numpy as np
import pytest

from pate_jax.aggregate import noise
from pate_jax.audit import verify
from pate_jax.audit.attacks import canaries, replicas, risk, shadows, teacher_canaries
from pate_jax.errors import PateError, PateWarning
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import voters_comparison
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.settings import DataChoice
from pate_jax.runs.tune import candidates
from pate_jax.sweep import Grid, SweepConfig, results, sweep
from pate_jax.sweep.compare import cells, named
from pate_jax.sweep.compare.ground import Ground
from pate_jax.system import clusters, storage, tasks
from pate_jax.system.tasks import Where

pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")  # of distributed


@pytest.fixture(scope="module")
def client():
    """Two workers that all tests here share."""
    with clusters.local(2) as found:
        yield found


@pytest.fixture
def workers(client):
    return tasks.Workers(client)


def test_every_item_is_done_once_by_other_processes_and_warnings_come_back(workers):
    with pytest.warns(PateWarning, match="three is a lot"):
        found = dict(workers.each(items.doubled, range(12)))
    assert {place: double for place, (double, _) in found.items()} == {one: 2 * one for one in range(12)}
    assert {pid for _, pid in found.values()} and os.getpid() not in {pid for _, pid in found.values()}
    with pytest.warns(PateWarning, match="three is a lot"):
        assert [double for _, (double, _) in tasks.HERE.each(items.doubled, [3, 5])] == [6, 10]


def test_an_error_of_an_item_is_the_error_of_the_command(workers):
    with pytest.raises(PateError, match="number=7 must be even"):
        list(workers.each(items.refused, [7]))


def test_an_error_of_a_worker_elsewhere_names_its_host_and_where_it_opens_files(
    workers, monkeypatch, tmp_path
):
    missing = tmp_path / "private.npz"
    with pytest.raises(PateError, match=f"^{missing} does not exist"):
        list(workers.each(partial(storage.read_arrays, kind="votes"), [missing]))
    here = platform.node()
    monkeypatch.setattr(tasks.platform, "node", lambda: "head")
    said = f"^a worker on {here}, which opens files under the same paths as this command, says: {missing} do"
    with pytest.raises(PateError, match=said):
        list(workers.each(partial(storage.read_arrays, kind="votes"), [missing]))


def test_an_error_of_an_item_is_in_no_log_of_a_worker():
    """Dask writes what a task raises into a worker's log, and an error may show a private value."""
    found = tasks._done(tasks.Task(items.refused, 7, tasks.versions(), ".", "this"))
    assert isinstance(found.error, PateError) and "items.py" in "".join(found.error.__notes__)
    assert "number=7 must be even" in str(pickle.loads(pickle.dumps(found)).error)


def test_the_item_of_a_killed_worker_runs_again(client, workers, tmp_path):
    assert dict(workers.each(items.killed_once, [tmp_path / "a"])) == {0: "a"}
    client.wait_for_workers(2, timeout=60)


def worker_processes():
    """The numbers of the processes that work for this one."""

    def works(process):
        try:
            return any(clusters._WORK in word for word in process.cmdline())
        except psutil.Error:  # it has ended
            return False

    return {one.pid for one in psutil.Process().children() if works(one)}


def test_workers_that_end_together_and_while_they_start_are_replaced(monkeypatch):
    monkeypatch.setattr(clusters, "_LOOK", 0.05)
    before = worker_processes()
    with clusters.local(2) as client:
        dead = []
        for _ in range(3):  # the second and third time before they have told anybody that they live
            for pid in wait_for(lambda: worker_processes() - before - {*dead}, 2):
                os.kill(pid, signal.SIGKILL)
                dead.append(pid)
        found = dict(tasks.Workers(client).each(items.squared_slowly, [1, 2, 3]))
    assert found == {0: 1, 1: 4, 2: 9} and len(dead) == 6
    assert worker_processes() <= before


def wait_for(found, number):
    """What is found once there is so much of it."""
    until = time.monotonic() + 60
    while len(there := found()) < number:
        assert time.monotonic() < until
        time.sleep(0.01)
    return there


def test_items_that_find_no_worker_do_not_wait_for_ever(monkeypatch):
    with clusters.local(1) as client:
        monkeypatch.setattr(clusters, "_WORK", "import time; time.sleep(60)")  # it never says that it lives
        assert client.cluster.scheduler.no_workers_timeout == clusters._PATIENCE
        client.cluster.scheduler.no_workers_timeout = 1
        client.retire_workers()
        said = "has been no worker for 1 seconds: what has ended is kept, so re"
        with pytest.raises(PateError, match=said):
            list(tasks.Workers(client).each(items.squared_slowly, [1, 2]))


def test_workers_that_do_not_start_are_an_error(monkeypatch):
    monkeypatch.setattr(clusters, "_WORK", "raise SystemExit(3)")
    with pytest.raises(PateError, match=r"--workers 1: the workers do not start \(\d"), clusters.local(1):
        pass


@pytest.mark.long
def test_workers_that_are_killed_at_random_moments_lose_nothing():
    """Twenty real signals: every item is there once, and right."""
    random, killed, ended = np.random.default_rng(0), [], threading.Event()

    def kill():
        while not ended.wait(random.uniform(0.3, 2.5)) and len(killed) < 20:
            there = sorted(worker_processes() - before)
            if there:
                killed.append(int(random.choice(there)))
                os.kill(killed[-1], signal.SIGKILL)

    before = worker_processes()
    with clusters.local(2) as client:
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        try:
            for _ in range(40):
                found = list(tasks.Workers(client).each(items.squared_slowly, range(12)))
                assert sorted(found) == [(number, number**2) for number in range(12)]
                if len(killed) == 20:
                    break
        finally:
            ended.set()
            killer.join(60)
    assert len(killed) == 20


def test_workers_share_cores_and_work_where_the_command_does(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, flags, threads = next(workers.each(items.surroundings, [0]))[1]
    share = max(1, clusters.devices.cores() // 2)
    assert folder == str(tmp_path) and int(threads) == share
    assert flags.split().count(f"--xla_force_host_platform_device_count={share}") == 1


def test_workers_of_this_machine_keep_results_in_memory_alone(client):
    """What does not fit into memory would be written to a folder that others may read."""
    kinds = client.run(lambda dask_worker: type(dask_worker.data))
    assert len(kinds) == 2 and {*kinds.values()} == {dict}


def test_what_was_opened_for_one_command_is_forgotten_by_the_next(client, tmp_path):
    """A worker of a cluster outlives a command, and the file may be another one by the next."""
    path = tmp_path / "records.txt"
    for given in (client, None):
        for text in ("first", "second"):
            path.write_text(text)
            with tasks.engine(Where(), given) as engine:
                assert {found for _, found in engine.each(items.read, [path] * 6)} == {text}
    with tasks.engine(Where()) as engine:
        assert dict(engine.each(items.read, [path])) == {0: "second"}
        path.write_text("third")
        assert dict(engine.each(items.read, [path])) == {0: "second"}  # all items of a command see the same


def test_other_versions_and_folders_that_a_worker_does_not_see_are_refused(tmp_path):
    with pytest.raises(PateError, match=r"the worker has jax .*, not 0\.0\.1: install the same versions"):
        tasks._tried(tasks.Task(len, "ab", {**tasks.versions(), "jax": "0.0.1"}, ".", "this"))
    with pytest.raises(PateError, match=r"cannot enter .*nowhere .*: work in a folder that all"):
        tasks._tried(tasks.Task(len, "ab", tasks.versions(), str(tmp_path / "nowhere"), "this"))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"workers": 0}, "workers=0 must be at least 1"),
        ({"workers": 2, "cluster": "tcp://127.0.0.1:9"}, "--workers 2 and --cluster .* were both given"),
        ({"cluster": "somewhere"}, "--cluster somewhere is neither an address, as tls://HOST:8786, nor"),
        ({"cluster": "tcp://10.1.2.3:8786"}, "not encrypted, and what comes from private records would"),
        ({"cluster": "tcp://127.0.0.1:9"}, r"no scheduler answers at tcp://127.0.0.1:9: start one by `dask"),
        ({"cluster": "jobs.yaml"}, "says what a job is; say with --workers how many"),
        ({"cluster": "no.yaml", "workers": 2}, "no.yaml cannot be read"),
    ],
)
def test_a_cluster_that_is_not_there_is_named_with_the_remedy(where, said, monkeypatch):
    monkeypatch.setattr(clusters, "_ANSWER", 0.5)
    with pytest.raises(PateError, match=said), tasks.engine(Where(**where)):
        pass


@pytest.mark.parametrize("body", ["a: [", "jobqueue: 3", "jobqueue: {cray: {}}", "jobqueue: {slurm: 4}"])
def test_a_file_that_describes_no_jobs_is_refused(body, tmp_path):
    (tmp_path / "jobs.yaml").write_text(body)
    with (
        pytest.raises(PateError, match=r"jobs\.yaml"),
        tasks.engine(Where(workers=1, cluster=str(tmp_path / "jobs.yaml"))),
    ):
        pass


def test_shadow_runs_are_the_same_on_workers(workers):
    run = honest_runs.crowd("sums")
    made, _ = replicas.crowd(run)
    here = shadows.played(made, 40, 1)
    there = shadows.played(made, 40, 1, engine=workers, remade=shadows.Remade(replicas.crowd, run.root))
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.long
def test_methods_are_compared_alike_on_workers_which_open_the_records_themselves(workers, tmp_path):
    random, files = np.random.default_rng(0), {}
    for name, rows in (("private", 300), ("public", 80), ("test", 90)):
        inputs, files[name] = random.normal(size=(rows, 3)).astype(np.float32), tmp_path / f"{name}.npz"
        np.savez(files[name], inputs=inputs, labels=(inputs[:, 0] > 0).astype(int))
    choice = DataChoice(**files)
    ground = Ground(open_data(choice))
    wanted = cells.cells_of(named(["sums", "no privacy"]), [1.0])

    def measured(name, *where):
        rows = cells.measure(ground, wanted, tmp_path / name, 60.0, *where)
        return [
            {one: value for one, value in row.items() if one not in ("seconds", "shared")} for row in rows
        ]

    assert measured("here") == measured("there", workers, choice)
    with pytest.raises(PateError, match="workers open the records for themselves: name the data set"):
        measured("no choice", workers)


@pytest.fixture(scope="module", params=[1, 2, 4])
def some_workers(request):
    """One worker, two and four."""
    with clusters.local(request.param) as found:
        yield tasks.Workers(found)


def swept(votes, out, client=None):
    """The rows of a sweep and its page."""
    grid = Grid(("gnmax", "confident-gnmax"), ("10", "20"), ("0.5T",), ("30",), ("20", "40"))
    sweep(SweepConfig((str(votes),), out=out, values=grid, exact="front"), client)
    rows = results.read(out)
    exact = json.dumps([*rows.values()]).count('"exact_order"')
    assert len((out / "results.jsonl").read_text().splitlines()) == 8 + exact > 8
    return rows, (out / "sweep.html").read_bytes()


@pytest.fixture(scope="module")
def swept_here(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("swept"), np.random.default_rng(0)
    np.savez(folder / "votes.npz", votes=random.multinomial(50, [0.2, 0.3, 0.5], 40))
    return folder / "votes.npz", swept(folder / "votes.npz", folder / "here")


@pytest.mark.long
def test_a_sweep_has_the_same_rows_and_page_on_workers(some_workers, swept_here, tmp_path):
    votes, found = swept_here
    assert swept(votes, tmp_path / "there", some_workers._client) == found


@pytest.mark.long
def test_what_people_risk_is_the_same_on_workers(some_workers, tmp_path):
    runs = [RunDirectory(shutil.copytree(honest_runs.whole(7).root, tmp_path / one)) for one in ("a", "b")]
    here, there = risk.assess(runs[0], "6"), risk.assess(runs[1], "6", some_workers)
    assert str(here.rows()) == str(there.rows()) and sorted(here.moved) != [0.0] * 6  # nan is no number


@pytest.mark.long
def test_a_run_is_computed_again_on_workers_with_the_same_findings(some_workers):
    run = honest_runs.whole()
    here = verify.of_run(run, deep=True, retrained=6)  # all teachers, or which ones would be drawn anew
    there = verify.of_run(run, deep=True, retrained=6, engine=some_workers)
    assert here == there and there.of("failed") == [] and "its own shard and key" in str(there)


@pytest.mark.long
def test_a_choice_of_settings_ends_with_the_same_bytes_on_workers(some_workers, tmp_path):
    made = honest_runs.choice()
    candidates.run(replace(made, out=tmp_path / "again"), some_workers)
    for path in sorted(made.directory.rglob("*")):
        if path.is_file() and (path.suffix in (".npz", ".jsonl") or "release" in path.parts):
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(made.directory)).read_bytes()


@pytest.mark.long
def test_voters_are_rehearsed_alike_on_workers(some_workers):
    dataset = open_data(honest_runs.table())
    wish = {"records": 500, "epsilon": 3.0, "delta": 1e-5}
    here = voters_comparison.rehearsed(dataset, **wish)
    assert voters_comparison.rehearsed(dataset, **wish, engine=some_workers) == here


@pytest.mark.long
def test_canaries_play_alike_on_workers(some_workers):
    run = honest_runs.crowd("sums")
    opened = crowd_inputs.opened(run, tolerant=True)
    made = canaries.planted(opened, *canaries.releases(run), 400)

    def played(engine):
        key = partial(noise.seeded_key, 3)
        return canaries.played(made, 4, coins=np.random.default_rng(1), key=key, engine=engine)

    for one, other in zip(played(tasks.HERE), played(some_workers), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.long
def test_a_canary_among_teachers_plays_alike_on_workers(some_workers, monkeypatch):
    monkeypatch.setattr(teacher_canaries, "_AT_ONCE", 400)  # so that there are parts to share
    pair = teacher_canaries.Pair(*(np.tile(race, (4, 1)) for race in ([5, 4, 3], [4, 5, 3])))

    def played(engine):
        coins, key = np.random.default_rng(1), partial(noise.seeded_key, 3)
        found = teacher_canaries.rates(
            DiscreteGaussianMax(2.0), pair, 1_001, coins=coins, key=key, engine=engine
        )
        return [array for one in found.values() for array in one]

    here = played(tasks.HERE)
    for one, other in zip(here, played(some_workers), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(here[0]) + len(here[1]) == 1_002 and here[0].mean() > here[1].mean()
