"""What a run is made from: its data, shards, net and keys, each made once from the recorded settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import data, models
from pate_jax.accounting.exact import counts
from pate_jax.accounting.inputs import CUSTOMARY_DELTA
from pate_jax.crowd.plan import space_kind
from pate_jax.data import encoders, folders, forms, partition, relation, shuffle, texts
from pate_jax.data import labels as of_labels
from pate_jax.data.survey import Surveyed
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError, SharedInputs
from pate_jax.models import identity, linear, patches, spaces
from pate_jax.runs import measured, public_part, publication
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import METHOD, RECORDS, refuse_crowd
from pate_jax.runs.settings import DataChoice, PartitionChoice, to_settings
from pate_jax.student import PublicInputs
from pate_jax.student import spaces as student_spaces
from pate_jax.system import devices, progress, storage
from pate_jax.system.tasks import HERE, Engine

WHERE = ("data_dir", "manual_dir", "devices")  # they decide where work is done, never what comes out

_KEY = 0  # of a net that learns from public inputs alone, so no secret
_OF_IMAGES = ("patches", "contrast")


@dataclass(frozen=True)
class Inputs:
    """What a run is made from; each part is made when it is first asked for, and then kept.

    With `tolerant` a data set is opened even where public inputs are private ones too, or others than those
    that the run was begun with: that is for a check to say.
    """

    run: RunDirectory
    choice: DataChoice
    cut: PartitionChoice
    teacher: TeacherConfig
    tolerant: bool = False
    opened: data.Dataset | None = field(default=None, repr=False, compare=False)  # where it is open already
    known: models.Model | None = field(default=None, repr=False, compare=False)  # where it was made already
    engine: Engine = field(default=HERE, repr=False, compare=False)  # who reads a table in several files

    @cached_property
    def dataset(self) -> data.Dataset:
        """The private, public and test parts."""
        found = self.opened
        if found is None:
            opening = open_tolerantly if self.tolerant else open_data
            found = opening(self.choice, self.run.encoded, self.engine)
        if not self.tolerant:
            public_part.refuse_others(self.run, found)
            relation.check_users_count(found, self.cut.by)
        return found

    @property
    def coincide(self) -> bool:
        """Whether inputs that are private and public were known to be coincidences when the run began."""
        return self.choice.equal_rows_are_coincidences or self.dataset.equal_rows == "published"

    @cached_property
    def partition_key(self) -> bytes:
        """What the shards follow from."""
        return self.run.secret.derive("partition")

    @property
    def private(self) -> data.Part:
        """The private part as it is divided: of a table in several files, its records shard by shard."""
        return self._divided[0]

    @property
    def shards(self) -> partition.Shards:
        """The rows of each teacher."""
        return self._divided[1]

    @cached_property
    def _divided(self) -> tuple[data.Part, partition.Shards]:
        key, number, by, found = self.partition_key, self.cut.number, self.cut.by, self.dataset.scan
        if not isinstance(found, Surveyed):
            private = self.dataset.private
            return private, partition.divide(private, number, key=key, by=by)
        survey = found.survey
        deal = shuffle.ByTeacher(number, key, by, found.scan.reading.width, survey.letters)
        return shuffle.shards(found.scan, survey.records, deal, self.run.private, self.engine)

    @cached_property
    def seen(self) -> data.Dataset:
        """The data set as teachers see it: features beside inputs may take their place."""
        found = seen_by(self.teacher, self.dataset)
        return found if found.scan is None else replace(found, private=self.private)

    def seen_of(self, part: data.Part) -> np.ndarray:
        """What teachers see of public inputs."""
        return part.inputs if self.seen.public is self.dataset.public else part.encoded().inputs

    @cached_property
    def net(self) -> models.Model:
        """The net of every teacher."""
        return self.known or teachers_net(self.teacher, self.dataset)

    def seen_by_space(self, part: data.Part) -> np.ndarray | None:
        """Public inputs in the space of linear teachers; None where there are no such teachers."""
        if not self.teacher.closed_form or self.net.front is None:
            return None
        return np.asarray(self.net.front(self.seen_of(part)))

    @cached_property
    def teacher_key(self) -> jax.Array:
        """What the keys of all teachers are cut from."""
        words = np.frombuffer(self.run.secret.derive("teachers")[:8], np.uint32)
        key: jax.Array = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
        return key


def open(run: RunDirectory, *, tolerant: bool = False) -> Inputs:
    """What the settings of a run name; refused where no teachers were ever trained in it."""
    settings = run.record.read()
    refuse_crowd(settings, run.root)
    if "data" not in settings:
        run.existing(run.teacher_report, "train")
    return Inputs(run, settings.data, settings.partition, settings.teacher, tolerant)


def same_records(run: RunDirectory, dataset: data.Dataset) -> dict[str, str]:
    """A digest of the private records; refused where a run counted others, as somebody might count twice."""
    own = storage.digest(*dataset.private) if dataset.scan is None else dataset.scan.digest
    found, stages = {"digest": own}, run.record.stages()
    if stages.get(RECORDS, found) != found:
        raise PateError(
            f"the private records were changed since {run.root} was begun: restore them, or choose another "
            "--out, and add up what both runs cost"
        )
    return found


def check_files(dataset: data.Dataset) -> None:
    """Refuse a table in several files whose records cannot be gathered for teachers."""
    found = dataset.scan
    if found is not None and devices.processes() > 1:
        raise PateError(f"{found.scan.place} is read by one process: leave out --processes")
    if found is not None and found.scan.reading.id_column is None:
        raise PateError(
            f"{found.scan.place} is dealt to teachers by the ids of its records: name their column with "
            "--id-column"
        )


def record(run: RunDirectory, dataset: data.Dataset, choice: DataChoice) -> None:
    """Record what a run reads: its public part, how its data were chosen, and whether they are of a trial."""
    if dataset.target is not None and METHOD not in run.record.read():
        raise PateError(f"--target {dataset.target.name} is a number, which `pate run --voters sums` learns")
    if dataset.several and METHOD not in run.record.read():
        raise PateError(
            f"--label-column {choice.label_column} names several labels, which `pate run` learns under one "
            "budget: name one, and the others in --leave-out"
        )
    public_part.agree(run, dataset)
    run.record.agree("data", to_settings(choice), but_not=WHERE)
    limits = [column.name for column in dataset.columns if column.form == forms.LIMITS]
    if limits:
        progress.say(
            f"limits such as <0.5 are read as the number that they name, and marked: {', '.join(limits)}"
        )
    publication.record_trial(run, dataset.trial)


def open_data(choice: DataChoice, keep: Path | None = None, engine: Engine = HERE) -> data.Dataset:
    """Load the chosen data set, and check what is to be measured on it.

    `keep` is the private folder of a run for what a slow encoder makes of texts; a private table in several
    files is read by the `engine`.
    """
    labels = texts.named(choice.label_column, "label_column")
    if len(labels) > 1:
        each = [open_data(of_label(choice, labels, label), keep, engine) for label in labels]
        return of_labels.joined(labels, each)
    if choice.most_labels is not None:
        raise PateError(
            f"--most-labels {choice.most_labels} is of teachers of several labels: name these in "
            "--label-column, or leave it out"
        )
    found = _opened(choice, keep, engine)
    measured.check(found, choice.positive, choice.by_group)
    return found


def of_label(choice: DataChoice, labels: Sequence[str], label: str) -> DataChoice:
    """The data of one of several labels, to which the others are no inputs.

    >>> of_label(DataChoice(leave_out="site"), ("sick", "died"), "sick").leave_out
    'site,died'
    """
    others = [*texts.named(choice.leave_out, "leave_out"), *(one for one in labels if one != label)]
    return replace(choice, label_column=label, leave_out=",".join(others), most_labels=None)


def open_classes(choice: DataChoice, command: str, keep: Path | None = None) -> data.Dataset:
    """The same for a command that looks at one label, of classes."""
    refuse_several(choice.label_column, command)
    if choice.target is not None:
        raise PateError(
            f"--target {choice.target} is a number, and `{command}` knows classes alone: `pate run` learns "
            "it, by sums of records or by --teachers, and `pate compare` shows both beside what is free"
        )
    return open_data(choice, keep)


def refuse_several(
    label_column: str | None, command: str, epsilon: float = 1.0, delta: float = CUSTOMARY_DELTA
) -> None:
    """Refuse several labels where a command looks at one.

    >>> refuse_several("a,b", "pate compare")
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: --label-column a,b names 2 labels, which `pate run` learns under one budget, \
and `pate compare` looks at one: name one, and the others in --leave-out; of epsilon 1 each may cost 0.684148
    """
    labels = texts.named(label_column, "label_column")
    if len(labels) > 1:
        share = counts.share_of(epsilon, delta, len(labels))
        raise PateError(
            f"--label-column {label_column} names {len(labels)} labels, which `pate run` learns under one "
            f"budget, and `{command}` looks at one: name one, and the others in --leave-out; of epsilon "
            f"{epsilon:g} each may cost {share:g}"
        )


def _opened(choice: DataChoice, keep: Path | None, engine: Engine) -> data.Dataset:
    if choice.private is None or choice.public is None:
        reader = encoders.split(choice.encoder).frozen
        if choice.text_column or (reader and not encoders.reads_photos(reader)):
            flag = f"text-column {choice.text_column}" if choice.text_column else f"encoder {reader}"
            raise PateError(f"--{flag} is for tables of your own: give --private and --public")
        if isinstance(choice.classes, str):
            raise PateError(f"--classes {choice.classes} names the classes of your own files: give --private")
        found = data.load(
            choice.dataset,
            data_dir=choice.data_dir,
            manual_dir=choice.manual_dir,
            size=choice.records,
            classes=choice.classes,
            ids_are_stable=choice.ids_are_stable,
            equal_rows_are_coincidences=choice.equal_rows_are_coincidences,
        )
        return folders.of_set(found, reader, choice.image_size, keep) if reader else found
    return data.from_files(
        choice.private,
        choice.public,
        choice.test,
        label_column=choice.label_column,
        leave_out=choice.leave_out,
        target=choice.target,
        target_range=choice.target_range,
        id_column=choice.id_column,
        user_column=choice.user_column,
        categories=choice.categories,
        scales=choice.scales,
        classes=choice.classes,
        image_size=choice.image_size,
        text_column=choice.text_column,
        encoder=encoders.split(choice.encoder).frozen,
        ids_are_stable=choice.ids_are_stable,
        equal_rows_are_coincidences=choice.equal_rows_are_coincidences,
        show_public=choice.show_public,
        equal_ids_are_coincidences=choice.equal_ids_are_coincidences,
        test_is_private=choice.test_is_private,
        keep=keep,
        engine=engine,
    )


def open_tolerantly(choice: DataChoice, keep: Path | None = None, engine: Engine = HERE) -> data.Dataset:
    """The chosen data set, whatever its parts have in common."""
    try:
        return open_data(choice, keep, engine)
    except SharedInputs:
        choice = replace(choice, equal_rows_are_coincidences=True, equal_ids_are_coincidences=True)
        return open_data(choice, keep, engine)


def front_of(config: TeacherConfig, dataset: data.Dataset) -> str:
    """The space of linear teachers, or the encoder that makes it: as chosen, the owner's, or by the inputs.

    >>> front_of(TeacherConfig(net="linear"), data.load("strokes", size=20))
    'patches'
    """
    if config.front is not None:
        return config.front
    return "encoder" if dataset.public.features is not None else space_kind(dataset)


def seen_by(config: TeacherConfig, dataset: data.Dataset) -> data.Dataset:
    """The data set as teachers see it: features beside inputs take their place in the space `encoder`."""
    return dataset.seen_in(front_of(config, dataset)) if config.closed_form else dataset


def teachers_net(
    config: TeacherConfig, dataset: data.Dataset, known: spaces.Space | None = None
) -> models.Model:
    """The net of a run's teachers; `known` is the space of `front_of`, where it was learned already."""
    if config.net is None and config.net_args is not None:
        raise PateError(f"net_args={config.net_args!r} is for a net of your own: name it with --net")
    net = config.net or ("cnn" if dataset.kind == "image" else "table")
    if net == "patches":
        typical = patches.learn(dataset.preprocessing.apply(dataset.public.inputs))
        return models.on_patches(
            typical, dataset.preprocessing, input_shape=dataset.input_shape, classes=dataset.classes
        )
    if net == "linear":
        return _on_space(config, dataset, known)
    if config.own_net:
        return _own_net(config, dataset)
    if net == "tandem":
        raise PateError("net='tandem' is one of students; choose patches or another net for teachers")
    return models.build(
        net, input_shape=dataset.input_shape, classes=dataset.classes, activation=config.activation
    )


def _own_net(config: TeacherConfig, dataset: data.Dataset) -> models.Model:
    """The net that a user's own module makes."""
    if config.activation != "relu":
        raise PateError(
            f"activation={config.activation!r} is for the nets of this library, and net={config.net!r} is "
            "your own: say it in --net-args"
        )
    net = identity.net_named(str(config.net), config.net_args, dataset.input_shape, dataset.classes)
    return models.model_of(net, dataset.input_shape)


def _on_space(config: TeacherConfig, dataset: data.Dataset, known: spaces.Space | None) -> models.Model:
    """The net of linear teachers, on a space that the public part teaches."""
    front, seen = front_of(config, dataset), seen_by(config, dataset)
    encoder = front if ":" in front else ""
    kind = cast(spaces.Kind, "encoder" if encoder else front)
    space = known or student_spaces.learn(
        kind, PublicInputs.of(seen), key=jax.random.key(_KEY), encoder=encoder
    )
    if kind in _OF_IMAGES:  # where classes are seldom linear; those of tables and encoders often are
        space = linear.lifted(space, seen.public.inputs)
    return models.on_space(space, input_shape=seen.input_shape, classes=dataset.classes)
