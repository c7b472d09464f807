"""The stages of a crowd's run after its release: the statement, the student and the reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pate_jax import accounting, aggregate, data, student
from pate_jax.accounting.crowd_statement import CrowdStatement
from pate_jax.crowd import shares
from pate_jax.data import relation
from pate_jax.errors import PateError
from pate_jax.runs import budget, config_file, ledger, public_labels, queries, registration, results
from pate_jax.runs.crowds import answers, choice, forecast, processes, release, steps, students, teachers
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds.inputs import Crowd, compares, is_candidate, metric_of, plan_of, told
from pate_jax.runs.crowds.teachers import Chosen
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import record, same_records
from pate_jax.runs.record import COMPARED, CROWD, PLANNED, RECORDS
from pate_jax.runs.settings import CrowdChoice, DataChoice, RunConfig, to_settings
from pate_jax.system import progress, storage
from pate_jax.system.tasks import HERE, Engine

_AUTO = student.Auto()


def begin(
    run: RunDirectory,
    choice: DataChoice,
    voters: CrowdChoice,
    config: student.StudentConfig = _AUTO,
    engine: Engine = HERE,
) -> Crowd:
    """Open the data of a run, and record what it is made from; `config` is that of the student.

    Nothing is recorded before the data were opened and found fit, so a mistyped command can be given again.
    """
    crowd_inputs.refuse_others(run)
    crowd = crowd_inputs.made(run, choice, voters, engine=engine)
    processes.check(crowd)
    students.check(config, crowd)
    crowd.check_public()
    records = same_records(run, crowd.dataset)
    run.secret.draw(voters.seed)
    record(run, crowd.dataset, crowd.inputs.choice)
    run.record.agree(RECORDS, records)
    _agree(crowd, config)
    run.record.agree("relation", {"relation": voters.by})
    budget.warn_of_delta(voters.delta, budget.people(crowd.dataset, voters.by), voters.by)
    return crowd


def _agree(crowd: Crowd, config: student.StudentConfig) -> None:
    """Record a crowd, and with it whether its students may be compared; later commands change neither."""
    wanted, record = to_settings(crowd.choice), crowd.run.record
    found = students.rivals(config, crowd)
    if CROWD in record.read() or not found:
        record.agree(CROWD, wanted)
    else:
        record.revise({COMPARED: {one.method: to_settings(one) for one in found}, CROWD: wanted})


def state(run: RunDirectory, delta: float) -> CrowdStatement:
    """What the release of a run costs, from what its ledger shows."""
    settings = run.record.read()
    lines = list(ledger.releases(run.ledger))
    by = settings.crowd.by
    if by != settings.relation:
        raise PateError(
            f"{run.settings} says that voters are counted by {by}, and covers {settings.relation}: "
            "restore it from a backup"
        )
    return accounting.crowd_statement(
        [line.event for line in lines],
        delta,
        voters=told(run),
        relation=by,
        private=run.secret.seed is None,
        tuned=settings.tuned,
    )


def account(run: RunDirectory, delta: float | None = None) -> CrowdStatement:
    """Write the statement; there is nothing in it that may not leave."""
    _check_finished(run)  # nothing is recorded of a run that has released nothing
    delta = budget.agreed_delta(run, delta)
    run.record.agree("account", {"delta": delta})
    statement = state(run, delta)
    results.state(run, statement)
    return statement


def _check_finished(run: RunDirectory) -> None:
    found, choice = steps.shown(run), run.record.read().crowd
    for step in range(1, max(1, len(found.tables)) + 1):
        steps.load_noisy(run, step)
    if not steps.finished(run, choice):
        raise PateError(
            f"{run.ledger} shows {len(found.tables)} of {steps.planned(run)} steps, or a judgement is left: "
            "repeat the command that made the run, and it goes on"
        )


def teach(run: RunDirectory, config: student.StudentConfig, crowd: Crowd | None = None) -> dict[str, Any]:
    """Train the student on what follows from the noisy table and write release/; once."""
    statement = storage.read_json(run.existing(run.public_statement, "account"), "statement")
    before = results.finished(run, config, statement)
    if before is not None:
        return before
    crowd = (crowd or crowd_inputs.opened(run)).at(len(steps.shown(run).tables))
    dataset = crowd.dataset
    students.check(config, crowd)
    run.record.agree("student", to_settings(config))
    learned, given, asked, choice = learn(crowd, config, again=False)
    doubt = shares.doubt(answers.shares(crowd)[0])
    progress.warn(doubt)
    made = {
        **results.facts(run, dataset, relation.without_warning(dataset.description)),
        "voters": crowd.choice.voters,
        "by": crowd.choice.by,
        "told": told(run),
        "space": crowd.plan.space.description()._asdict(),
        "queries": len(asked.ids),
        "near": queries.near(dataset, asked) if crowd.choice.voters == "neighbours" else None,
        "pool": len(dataset.public.ids),
        **_told_of_steps(crowd),
        **_told_of_rivals(run, crowd),
        **_told_of_choice(run),
        "method": choice.config.method,
        "comparison": choice.comparison,
        **_told_of_plan(run, crowd.choice.epsilon),
        "doubt": doubt,
    }
    return results.finish(run, learned, dataset, statement, made, (asked, given))


def learn(
    crowd: Crowd, config: student.StudentConfig, *, again: bool = True
) -> tuple[student.Student, aggregate.Answers, data.Part, student.Choice]:
    """The student, from public inputs and noisy tables alone; answers, what they answer, and its method.

    Without `again` a student that was compared with others is taken as it was then.
    """
    found, asked = answers.given(crowd)
    choice = students.chosen(config, crowd, found, asked)
    if not again and isinstance(config, student.Auto) and compares(crowd.run, crowd.choice):
        learned = students.kept(crowd, choice.config.method)
    elif not again and is_candidate(crowd.run):
        learned = crowd.scored
    else:
        learned = students.final(crowd, choice)
    return public_labels.informed(crowd.run, learned, crowd.dataset), found, asked, choice


def _told_of_plan(run: RunDirectory, epsilon: float) -> dict[str, Any]:
    """What the plan expected of other budgets, if the run chose its voters."""
    rows = run.record.stages().get(PLANNED, {}).get("at", [])
    return {"planned": rows, "less": forecast.less(rows, epsilon)}


def _told_of_steps(crowd: Crowd) -> dict[str, Any]:
    """What is said of a run's steps, if it had several."""
    made = crowd.at(1).plan.steps
    return {} if made is None else {"steps": crowd.step, "step_directions": len(made.space.variances)}


def _told_of_rivals(run: RunDirectory, crowd: Crowd) -> dict[str, Any]:
    """What is said of the students of a run's sums, if some voters compared them."""
    return {"compared": students.told(run)._asdict()} if compares(run, crowd.choice) else {}


def _told_of_choice(run: RunDirectory) -> dict[str, Any]:
    """What is said of a choice of settings, if the run is of its winner: its list, and the noisy score."""
    tuned = run.record.read().tuned
    if tuned is None:
        return {}
    (line,), some = steps.shown(run).scores, steps.held_out(run)
    score = min(max(steps.shown(run).outcomes()[0] / some, 0.0), 1.0)
    said = {"settings": tuned.settings, "expected": tuned.expected, "random": not tuned.of_all}
    return {"tuned": {**said, "score": score, "noise": line.event.sigma / some}}


def summary(run: RunDirectory) -> dict[str, Any]:
    """What `pate budget` shows of a crowd's run: what it has released, and what that cost."""
    lines, settings = list(ledger.releases(run.ledger)), run.record.read()
    delta = settings.crowd.delta if settings.delta is None else settings.delta
    return budget.of_releases(run, lines, delta, state)


def run(config: RunConfig, engine: Engine = HERE) -> dict[str, Any] | Chosen:
    """Count, release, account, teach and report; what is finished already is not repeated.

    Of several processes all count; the first does the rest, and the others return nothing. Where teachers
    are chosen, all return these, and nothing but the number of voters was released.
    """
    run = RunDirectory(config.directory)
    ended = processes.together(config, lambda: _released(run, config, engine))
    if ended.chosen is not None:
        return ended.chosen
    if not ended.goes_on:
        return {}
    with run.writing():
        crowd = _release(run, config, engine)
        if isinstance(crowd, Chosen):
            return crowd
        account(run, config.delta)
        teach(run, config.student, crowd)
        return results.tell_plain(run) | registration.shown(run)


def _released(run: RunDirectory, config: RunConfig, engine: Engine) -> Chosen | None:
    with run.writing():
        found = _release(run, config, engine)
    return found if isinstance(found, Chosen) else None


def _release(run: RunDirectory, config: RunConfig, engine: Engine) -> Crowd | Chosen:
    """Begin, choose the voters if that is left open, and release; what is released is not counted again."""
    open_yet = config.who == "auto"
    before = teachers.of(run) if open_yet else None
    if before is not None:
        return before
    begun = choice.begun_as(run)
    wanted = config.crowd_as(begun) if open_yet else config.crowd
    crowd = begin(run, config.data, steps.as_begun(run, wanted), config.student, engine)
    public_labels.begin(run, crowd.dataset, config.learn_from_public_labels, metric_of(crowd))
    registration.enter(run, plan_of(run), lambda: crowd.dataset, config.register)
    if open_yet:
        decided = choice.decided(crowd)
        if isinstance(decided, Chosen):
            return decided
        crowd = decided
    made = crowd.choice
    chosen = replace(config, voters=made.voters, epsilon=made.epsilon)
    config_file.write(run.config, chosen)
    release.release(crowd)
    if made.voters == "sums":
        config_file.write(run.config, replace(chosen, steps=steps.planned(run)))
    return crowd
