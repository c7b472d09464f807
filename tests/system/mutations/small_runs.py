"""Runs that a mutated pipeline makes: votes from elsewhere, or a few tiny teachers; made anew each time."""

import contextlib
from dataclasses import replace

import honest_runs
import numpy as np
import test_stable_runs

from pate_jax import voting
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax, GaussianHistogram
from pate_jax.runs import batches, chain, pipeline, register, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.student import Ridge

MECHANISM = DiscreteGaussianMax(6.0)
TEACHER = TeacherConfig(net="table", epochs=1, min_steps=3, batch_size=8, devices=1)


def answered(folder, first=30, again=0, mechanism=MECHANISM):
    """Two batches of votes made elsewhere, of little consensus; `again` inputs occur in both."""
    run, random = RunDirectory(folder), np.random.default_rng(3)
    with run.writing():
        for batch, shift in enumerate((0, first - again)):
            ids = np.array([f"pool-{shift + row}" for row in range(first)])
            votes = random.multinomial(50, [0.4, 0.35, 0.25], size=first)
            batches.adopt(run, voting.Votes(votes, ids=ids), None, more=batch > 0, relation="record")
            batches.answer(run, mechanism, 20.0, 1e-5)
        stages.account(run)
    return run


def counted(folder):
    """The same votes, answered by whole rows of noisy counts."""
    return answered(folder, mechanism=GaussianHistogram(6.0))


def counted_once(folder):
    """One list of rows of noisy counts, without a budget."""
    run = RunDirectory(folder)
    with run.writing():
        votes = voting.Votes(np.full((30, 3), 20), ids=np.array([f"pool-{row}" for row in range(30)]))
        batches.adopt(run, votes, None, relation="record")
        batches.answer(run, GaussianHistogram(12.0))
        stages.account(run, 1e-5)
    return run


def listed(folder):
    """Three batches asked of a list of stable answers, which ends in the second one."""
    run = RunDirectory(folder)
    with contextlib.suppress(PateError):
        test_stable_runs.ask(run, 3, seed=None)
    with run.writing():
        stages.account(run, 1e-5)
    return run


def registered(folder):
    """A run that is kept in a register beside it."""
    run, file = RunDirectory(folder), folder.parent / f"{folder.name}-register.jsonl"
    with run.writing():
        votes = voting.Votes(np.full((30, 3), 20), ids=np.array([f"pool-{row}" for row in range(30)]))
        batches.adopt(run, votes, None, relation="record")
        register.begin(file)
        pipeline.before_answers(run, file, MECHANISM, None, None)
        batches.answer(run, MECHANISM)
        stages.account(run)
    return run


def overlapping(folder):
    """Half of the second batch was asked about in the first."""
    return answered(folder, again=15)


def crashed(folder, make=answered):
    """A run whose process ends as its first batch is being recorded."""
    run = RunDirectory(folder)
    append = chain.Writer.append

    def crash(book, entry):
        raise KeyboardInterrupt

    chain.Writer.append = crash
    try:
        make(folder)
    except KeyboardInterrupt:
        pass
    finally:
        chain.Writer.append = append
    return run


def resumed(folder):
    """A run whose answers were lost after they had been recorded, and that was asked to go on."""
    run = answered(folder)
    before = run.answers.read_bytes()
    run.answers.unlink()
    with run.writing():
        batches.answer(run, MECHANISM, 20.0, 1e-5)
    if run.answers.read_bytes() != before:
        (run.private / "answers-9999.npz").write_bytes(before)  # what had left already
    return run


def _images(count, seed):
    """Grey images of 8 x 8 with a bright row, whose place is the label."""
    random = np.random.default_rng(seed)
    inputs, labels = random.integers(0, 90, (count, 8, 8)).astype(np.uint8), random.integers(0, 2, count)
    inputs[np.arange(count), 2 + 3 * labels] += 150
    return inputs, labels


def public_images():
    """The public part of `of_images`."""
    return _images(70, 2)


def copied_images():
    """A public part of which 60 are private records."""
    return tuple(np.concatenate(each) for each in zip(_images(60, 1), _images(10, 2), strict=True))


def of_images(folder):
    """A whole run on images, with a student that holds those that were answered."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (inputs, labels) in {"private": _images(60, 1), "public": public_images()}.items():
        np.savez(folder / f"{name}.npz", inputs=inputs, labels=labels)
    config = RunConfig(
        data=DataChoice(private=folder / "private.npz", public=folder / "public.npz", show_public=True),
        partition=PartitionChoice(teachers=3),
        teacher=TeacherConfig(net="mlp", epochs=1, min_steps=1, devices=1),
        student=Ridge(),
        queries=65,
        mechanism=MECHANISM,
        out=folder / "run",
    )
    pipeline.run(config)
    return RunDirectory(folder / "run")


def choice() -> DataChoice:
    """The table of people that the honest runs use."""
    return honest_runs.table()


def trained(folder, width=None, seed=None):
    """A run by user of tiny teachers that have voted, and nothing answered yet."""
    run, teacher = RunDirectory(folder), replace(TEACHER, width=width)
    partition = PartitionChoice(teachers=honest_runs.TEACHERS, by="user", seed=seed)
    with run.writing():
        inputs = stages.begin(run, choice(), partition, teacher)
        stages.train(inputs)
        stages.settle(inputs, MECHANISM, None, 1e-5)
        stages.vote(inputs, honest_runs.QUERIES)
    return run
