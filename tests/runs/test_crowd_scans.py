"""Crowds of a table in several files: bit for bit the release of one file, and none of files that change."""

import shutil
import signal
import time
from dataclasses import replace

import forked
import numpy as np
import pytest
import scanned_files as files
from commands import call

from pate_jax import crowd as crowd_of
from pate_jax import voting
from pate_jax.audit import verify
from pate_jax.data import shuffle, table_files
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import GNMax
from pate_jax.runs import ledger, people, pipeline
from pate_jax.runs.crowds import inputs, release, scans, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import CrowdChoice, DataChoice, PartitionChoice, RunConfig
from pate_jax.student import Linear, Ridge
from pate_jax.system import clusters, storage, tasks

PRIVATE, PUBLIC = files.drawn(200, 1), files.drawn(60, 2, first=500)


@pytest.fixture(name="public", scope="module")
def _public(tmp_path_factory):
    own = {name: PUBLIC[name] for name in files.NAMES}
    return files.write(tmp_path_factory.mktemp("pool") / "public.parquet", own)


def chosen(private, public, user=None):
    return DataChoice(private=private, public=public, label_column="sick", id_column="pid", user_column=user)


def begun(out, private, public, engine=tasks.HERE, **more):
    choice = CrowdChoice(**{"voters": "sums", "seed": 5, "epsilon": 4.0, "steps": 3, **more})
    user = "who" if choice.by == "user" else None
    return stages.begin(RunDirectory(out), chosen(private, public, user), choice, engine=engine)


def released(crowd):
    """Everything that a run has told: what was asked, the exact tables' digests, and the noisy numbers."""
    release.release(crowd)
    return [(line.event, line.public, line.exact, line.values) for line in ledger.releases(crowd.run.ledger)]


@pytest.mark.parametrize(
    "more", [{}, {"voters": "neighbours", "steps": None, "queries": 20}], ids=["sums", "neighbours"]
)
def test_files_of_any_size_and_order_give_the_ledger_of_one_file(tmp_path, public, monkeypatch, more):
    monkeypatch.setattr(table_files, "ROWS", 40)
    whole = released(begun(tmp_path / "1", files.write(tmp_path / "one.csv", PRIVATE), public, **more))
    assert len(whole) == (2 if more else 4)
    for names in ("abc", "cab"):
        folder = files.cut(tmp_path / names, PRIVATE, names)
        assert released(begun(tmp_path / f"out-{names}", folder / "*.parquet", public, **more)) == whole


@pytest.mark.parametrize(
    ("more", "suffix", "name"),
    [
        ({}, ".parquet", "U{}"),
        ({"voters": "neighbours", "steps": None, "queries": 20}, ".parquet", None),
        ({"steps": 1}, ".csv", "00{}"),
    ],
    ids=["sums", "neighbours", "texts"],
)
def test_users_of_many_files_give_the_ledger_of_one_file(tmp_path, public, monkeypatch, more, suffix, name):
    private = files.of_users(PRIVATE, 60, name)
    one = files.write(tmp_path / f"one{suffix}", private)
    whole = released(begun(tmp_path / "1", one, public, by="user", **more))
    monkeypatch.setattr(table_files, "ROWS", 40)
    monkeypatch.setattr(shuffle, "_GROUP", 1000)
    monkeypatch.setattr(shuffle, "_WAITING", 3000)
    for names in ("abc", "cab"):
        folder = files.cut(tmp_path / names, private, names, suffix)
        crowd = begun(tmp_path / f"out-{names}", folder, public, by="user", **more)
        assert released(crowd) == whole and crowd.number == len({*private["who"]})
        groups = scans.shuffled(crowd).groups
        assert len(groups) > 5 and max(len(one.starts) for group in groups for one in group.pieces) > 1
        assert crowd.dataset.scan.people.number == sum(map(users_in, groups))


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2, 4])
def test_workers_give_the_ledger_of_one_process(tmp_path, public, number, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(shuffle, "_GROUP", 4000)
    folder = files.cut(tmp_path / "many", files.of_users(PRIVATE, 60), "abc")
    plain = files.cut(tmp_path / "plain", PRIVATE, "abc")
    kinds = {"sums": {"by": "user"}, "neighbours": {"steps": None, "queries": 20}}
    with clusters.local(number) as client:
        engine = tasks.Workers(client)
        for voters, more in kinds.items():
            told = [
                released(
                    begun(
                        tmp_path / f"{name}-{voters}",
                        folder if "by" in more else plain,
                        public,
                        where,
                        voters=voters,
                        **more,
                    )
                )
                for name, where in (("here", tasks.HERE), ("there", engine))
            ]
            assert told[0] == told[1]
        teachers = [
            teachers_of(tmp_path / f"{place}-teachers", folder, public, "user", "linear", where)
            for place, where in (("here", tasks.HERE), ("there", engine))
        ]
        votes = [voting.load_votes(run.votes).teacher_labels for run in teachers]
        assert np.array_equal(*votes)
        files.write(folder / "b.parquet", {**files.rows(PRIVATE, 0, 9), "who": [None] * 9})
        with pytest.raises(PateError, match=r"the column .who. is"):
            begun(tmp_path / "refused", folder, public, engine, by="user")


def test_workers_without_files_have_no_work(tmp_path, public, capsys):
    one = files.write(tmp_path / "one.csv", PRIVATE)
    words = ["run", "--private", one, "--public", public, "--label-column", "sick"]
    assert call(*words, "--workers", 2, "--out", tmp_path / "run")
    assert "--workers 2 shares out a private table in several files" in capsys.readouterr().err


@pytest.mark.long
def test_killed_at_twenty_moments_a_run_by_user_releases_the_same(tmp_path, public):
    folder = files.cut(tmp_path / "many", files.of_users(PRIVATE, 60), "abc")
    words = f"run --private {folder}/*.parquet --public {public} --label-column sick --id-column pid "
    words += "--user-column who --by user --voters sums --steps 2 --epsilon 4 --seed 4 --register none --out"

    def made(out):
        assert not list(out.rglob(".*.tmp"))
        lines = list(ledger.releases(RunDirectory(out).ledger))
        return [(line.batch, line.public, line.exact, line.values) for line in lines]

    began = time.monotonic()
    assert forked.ended([forked.pate([*words.split(), tmp_path / "whole"])]) == [0]
    seconds, whole = time.monotonic() - began, made(tmp_path / "whole")
    random, killed, number, outs = np.random.default_rng(0), 0, 0, set()
    while killed < 20:
        out = tmp_path / f"run-{number}"
        process = forked.pate([*words.split(), out])
        process.join(random.uniform(0, seconds))
        if process.exitcode is None:
            process.kill()
            killed += 1
        else:
            number += 1
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        outs.add(out)
    for out in outs:
        assert forked.ended([forked.pate([*words.split(), out])]) == [0]
        assert made(out) == whole


def users_in(group):
    return len(np.unique(scans.users_of(group).users))


def shuffled_files(run):
    return list(run.private.glob(".records-*"))


def test_what_was_put_together_goes_with_its_last_use_and_on_failure(tmp_path, public, monkeypatch):
    folder = files.cut(tmp_path / "many", files.of_users(PRIVATE, 60), "abc")
    crowd = begun(tmp_path / "run", folder, public, by="user")
    release.release(crowd)
    assert len(shuffled_files(crowd.run)) == 3
    assert {path.stat().st_mode & 0o777 for path in shuffled_files(crowd.run)} == {0o600}
    del crowd.kept["shuffled"]
    assert shuffled_files(crowd.run) == []
    other = begun(tmp_path / "other", folder, public, by="user")
    release.count_voters(other)
    real = scans.ByUser.__call__

    def failing(deal, batch, groups):
        if batch.path.name == "c.parquet":
            assert len(shuffled_files(other.run)) == 2
            raise PateError("enough")
        return real(deal, batch, groups)

    with monkeypatch.context() as patch:
        patch.setattr(scans.ByUser, "__call__", failing)
        with pytest.raises(PateError, match="enough"):
            release.release(other)
    assert shuffled_files(other.run) == [] and len(list(ledger.releases(other.run.ledger))) == 1
    (other.run.private / ".records-killed-00000.tmp").write_bytes(b"records")
    with other.run.writing():
        assert shuffled_files(other.run) == []
        release.release(other)
        assert len(shuffled_files(other.run)) == 3
    assert shuffled_files(other.run) == []


def test_the_table_of_files_is_the_sum_of_the_tables_of_each(tmp_path, public):
    crowd = begun(tmp_path / "run", files.cut(tmp_path / "many", PRIVATE, "abc"), public)
    inputs_of_number(crowd)
    scan, plan = crowd.dataset.scan.scan, crowd.plan
    each = [scans.table_of(path, scan, plan) for path in scan.files]
    assert np.array_equal(sum(each), scans.table(crowd))
    one = begun(tmp_path / "other", files.write(tmp_path / "one.parquet", PRIVATE), public)
    for table, start, size in zip(each, (0, 7, 157), files.SIZES, strict=True):
        assert np.array_equal(table, crowd_of.table(plan, one.everybody.take(np.arange(start, start + size))))


def inputs_of_number(crowd):
    """Let the run tell its number of voters, which its plan goes by."""
    release.count_voters(crowd)
    assert inputs.told(crowd.run) > 1


@pytest.mark.parametrize("by", ["record", "user"])
def test_a_run_of_files_stands_every_check_and_a_changed_record_fails(tmp_path, public, by):
    private = files.of_users(PRIVATE, 60) if by == "user" else PRIVATE
    folder = files.cut(tmp_path / "many", private, "abc")
    config = RunConfig(
        chosen(folder, public, "who" if by == "user" else None),
        PartitionChoice(seed=4, by=by),
        voters="sums",
        epsilon=4.0,
        steps=2,
        student=Linear(),
        out=tmp_path / "run",
    )
    pipeline.run(config)
    run = RunDirectory(tmp_path / "run")
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and found.of("unchecked") == []
    assert f"{257 if by == 'user' else 200} private names is in it" in " ".join(found.of("passed"))
    (folder / "a.parquet").rename(folder / "z.parquet")  # the same records in another order
    assert verify.of_run(run).of("failed") == []
    changed = {**private, "dose": [PRIVATE["dose"][0] + 1, *PRIVATE["dose"][1:]]}
    files.cut(folder, changed, "zbc")
    failed = " ".join(verify.of_run(run).of("failed"))
    assert "shards is not the certified one" in failed
    with pytest.raises(PateError, match="the private records were changed since"):
        pipeline.run(config)


@pytest.mark.parametrize("by", ["record", "user"])
def test_a_file_that_changes_is_refused_and_nothing_is_charged(tmp_path, public, monkeypatch, by):
    private, changed = PRIVATE, files.drawn(200, 9)
    if by == "user":
        private, changed = (files.of_users(columns, 60) for columns in (private, changed))
    folder = files.cut(tmp_path / "many", private, "abc")
    crowd = begun(tmp_path / "run", folder, public, by=by)
    other = files.write(tmp_path / "other" / "b.parquet", files.rows(changed, 7, 157))
    kept = shutil.copy(folder / "b.parquet", tmp_path / "kept.parquet")
    shutil.copy(other, folder / "b.parquet")
    with pytest.raises(PateError, match=r"b\.parquet was changed"):
        release.release(crowd)
    assert not crowd.run.ledger.exists() or not list(ledger.releases(crowd.run.ledger))
    shutil.copy(kept, folder / "b.parquet")
    real = scans.table
    with monkeypatch.context() as patch:
        patch.setattr(
            scans, "table", lambda *given: shutil.copy(other, folder / "b.parquet") and real(*given)
        )
        with pytest.raises(PateError, match=r"b\.parquet was changed"):
            release.release(crowd)
    assert len(list(ledger.releases(crowd.run.ledger))) == 1 and not crowd.run.table.exists()
    shutil.copy(kept, folder / "b.parquet")
    release.release(crowd)
    whole = begun(tmp_path / "whole", files.write(tmp_path / "one.parquet", private), public, by=by)
    assert [line.values for line in ledger.releases(crowd.run.ledger)] == [one[3] for one in released(whole)]


def test_a_register_finds_the_people_of_files_and_of_one_table(tmp_path, public):
    folder = files.cut(tmp_path / "many", PRIVATE, "abc")
    one = begun(tmp_path / "1", files.write(tmp_path / "one.parquet", PRIVATE), public).dataset
    many, key = begun(tmp_path / "2", folder, public).dataset, bytes(32)
    mine, own = people.of(many, key), people.of(one, key)
    assert people.to_dict(mine) == people.to_dict(own) and {"ids", "contents", "values"} <= mine.keys()
    part = begun(tmp_path / "3", folder / "c.parquet", public).dataset
    assert people.same(mine, people.of(part, key))


def test_samples_of_a_stream_are_about_those_of_all_values(monkeypatch):
    monkeypatch.setattr(people, "KEPT", 500)
    hashes = np.random.default_rng(0).integers(0, 1 << 63, 20_000, np.uint64) * np.uint64(2)
    hashes[10_000:15_000] = hashes[:5_000]
    stream = people._Lowest()
    for part in np.array_split(hashes, 7):
        stream.add(part)
    found, whole = stream.sample(bytes(32)), people._sampled(hashes[:, None], bytes(32))
    assert np.array_equal(found.digests, whole.digests) and np.array_equal(found.counts, whole.counts)
    assert 0.8 < found.share / whole.share < 1.25 and 0.8 < found.repeats / whole.repeats < 1.25
    assert not stream.tells_apart()


TEACHERS = {
    "linear": TeacherConfig(net="linear"),
    "table": TeacherConfig(net="table", epochs=1, min_steps=3, batch_size=8, devices=1),
}


def teachers_of(out, private, public, by, net, engine=tasks.HERE):
    config = RunConfig(
        chosen(private, public, "who" if by == "user" else None),
        PartitionChoice(teachers=6, seed=4, by=by),
        teacher=TEACHERS[net],
        mechanism=GNMax(2.0),
        queries=20,
        student=Ridge(),
        out=out,
    )
    pipeline.run(config, engine)
    return RunDirectory(out)


@pytest.mark.parametrize(("by", "net"), [("record", "linear"), ("user", "table")])
def test_teachers_of_many_files_are_those_of_one_file(tmp_path, public, monkeypatch, by, net):
    private = files.of_users(PRIVATE, 60) if by == "user" else PRIVATE
    whole = teachers_of(tmp_path / "1", files.write(tmp_path / "one.parquet", private), public, by, net)
    monkeypatch.setattr(table_files, "ROWS", 40)
    monkeypatch.setattr(shuffle, "_GROUP", 6000)
    monkeypatch.setattr(shuffle, "_WAITING", 3000)
    folder = files.cut(tmp_path / "many", private, "cab")
    run = teachers_of(tmp_path / "2", folder, public, by, net)
    votes, own = (voting.load_votes(one.votes) for one in (run, whole))
    assert np.array_equal(votes.teacher_labels, own.teacher_labels) and len(own.teacher_labels) == 6
    assert storage.read_json(run.certificate, "certificate") == storage.read_json(
        whole.certificate, "certificate"
    )
    students = [np.load(one.student / "parameters.npz") for one in (run, whole)]
    assert students[0].files and all(np.array_equal(*(one[name] for one in students)) for name in students[0])
    assert not list(run.private.rglob(".*.tmp"))
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and not list(run.private.rglob(".*.tmp"))
    teachers_of(tmp_path / "2", folder, public, by, net)
    changed = {**private, "dose": [PRIVATE["dose"][0] + 1, *PRIVATE["dose"][1:]]}
    files.cut(folder, changed, "cab")
    assert "contents" in " ".join(verify.of_run(run).of("failed"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"by": "user"}, "by='user' needs the user of every private record.*--user-column"),
        ({"voters": "teachers", "ids": None}, "dealt to teachers by the ids.*--id-column"),
    ],
    ids=["users", "teachers"],
)
def test_what_lacks_names_is_refused_before_anything_is_recorded(tmp_path, public, more, words):
    config = {"voters": "sums", "epsilon": 4.0, "out": tmp_path / "run", "ids": "pid", **more}
    cut, own = PartitionChoice(by=config.pop("by", "record"), seed=4), config.pop("ids")
    private = PRIVATE if own else {name: PRIVATE[name] for name in files.NAMES}
    data = replace(chosen(files.cut(tmp_path / "many", private, "abc"), public), id_column=own)
    with pytest.raises(PateError, match=words):
        pipeline.run(RunConfig(data, cut, **config))
    run = RunDirectory(tmp_path / "run")
    assert not run.ledger.exists() and "data" not in run.record.read()


def test_a_certificate_of_files_is_checked_by_its_sums(tmp_path, public):
    crowd = begun(tmp_path / "run", files.cut(tmp_path / "many", PRIVATE, "abc"), public)
    released(crowd)
    made = storage.read_json(crowd.run.certificate, "certificate")
    plan, table = crowd.plan, release.load_table(crowd.run)
    public_digest = made["public_side"]
    assert list(release.faults(made, plan.release, table, public_digest)) == []
    assert list(scans.differences(made, crowd.dataset, crowd.inputs.partition_key)) == []
    assert list(scans.differences(made, crowd.dataset, bytes(32)))
    assert made["files"] == 3 and made["records"] == release.voters(made) == 200
