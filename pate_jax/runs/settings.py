"""The settings that users may choose, as frozen dataclasses from which the command line makes its flags."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from tyro.conf import OmitArgPrefixes, Positional, arg

from pate_jax.data.encoders import split
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import MOST_STEPS, Voting
from pate_jax.models.names import Metric, Space
from pate_jax.runs.thresholds import MechanismOrAuto
from pate_jax.student.settings import Auto, Linear, Own, Selection, Settings, StudentConfig

Choice = TypeVar("Choice")
TEACHERS, QUERIES, CUSTOMARY_EPSILON = 125, 500, 1.0  # where nobody says, and nothing is planned
STROKES = 30_000  # drawn where the number of teachers does not say how many

StudentFlags = Annotated[StudentConfig, arg(constructor=Settings)]  # by `pate_jax.cli.student`


@dataclass(frozen=True)
class DataChoice:
    """Which records are private, which inputs are public."""

    dataset: Positional[str] = "strokes"
    """A data set by name: strokes, glyphs, mnist, fashion_mnist, svhn, cifar10, adult, or one of TFDS. Not
    read where --private and --public name your own files."""
    private: Path | None = None
    """Your own private records: .npz with inputs, labels and ids, a table (.csv, .tsv, .parquet, .xlsx) or
    several ('in/*.csv'), or a folder with a folder of images for each class."""
    public: Path | None = None
    """Your own public inputs; labels, if any, judge which voters suit them, and measure: they are public."""
    test: Path | None = None
    """Your own public test part, with labels."""
    test_is_private: bool = False
    """Declare that the test rows are private records too: what is measured on them stays on your own page."""
    positive: str | None = None
    """The outcome, of two classes, whose probabilities are judged; unset: the rarer one of the test part."""
    metric: Metric = "accuracy"
    """What choices by rehearsal and compare go by: balanced, auroc or auprc where an outcome is rare."""
    by_group: str | None = None
    """Column of categories or codes by whose values the student is judged too, such as sex."""
    label_column: str | None = None
    """Column of the label; of several, as in sick,died."""
    most_labels: int | None = None
    """The most of several labels that a teacher names of an input; unset: as public labels show, or all."""
    target: str | None = None
    """Column of a table that holds a number to predict, in place of a label; by sums, or --teachers 300."""
    target_range: str | None = None
    """Its public range, such as 0,60, to which private ones are clipped; unset: that of the public part."""
    leave_out: str | None = None
    """Columns of a table that nothing is learned from, with commas between them."""
    id_column: str | None = None
    """Column of a table that holds the record's id."""
    user_column: str | None = None
    """Column that holds the user's id, for --by user."""
    ids_are_stable: bool = False
    """Declare that private records and users keep their ids when others come or go. Needed if the ids
    count up like row numbers, or are places in an archive, and removing a record must be covered too."""
    equal_rows_are_coincidences: bool = False
    """Declare that public inputs which equal private ones belong to other records, as happens with few
    columns. Decide by the origin of the rows: copies of private records void the guarantee."""
    show_public: bool = False
    """Declare that your own public inputs may go into release/ as they are: some on its page, and some inside
    of students that have to hold them. A data set by name is public by itself."""
    equal_ids_are_coincidences: bool = False
    """Declare that ids and users that are both public and private name different people."""
    categories: Path | None = None
    """JSON file with the categories of categorical columns; unset: those of the public part."""
    scales: Path | None = None
    """JSON file with offset, scale and filling of numeric columns; unset: those of the public part."""
    classes: int | str | None = None
    """Number of classes, or their names, as in no,yes, if the public labels do not show them; for glyphs, how
    many to draw."""
    image_size: int | None = None
    """Height and width to which the images of folders are resized; unset: they must all have one size."""
    text_column: str | None = None
    """Column of a table that holds free text, or several with commas between them."""
    encoder: str | None = None
    """What makes numbers of text or photos: words, minilm, lite0, lite2, an ONNX file, or module:function."""
    records: int | None = None
    """How many private records to draw of glyphs or strokes (unset: 240 a teacher, 30,000 without any)."""
    data_dir: Path | None = None
    """Where prepared data sets are kept."""
    manual_dir: Path | None = None
    """Folder with the original archives, for use without a network."""

    def __post_init__(self) -> None:
        if (self.private is None) != (self.public is None):
            raise PateError(
                "--private and --public go together: give both files; to try one table of your own, make "
                f"both parts by `pate split {self.private or self.public}`"
            )

    @property
    def function(self) -> str:
        """The encoder that is a function of the owner's own, module:function, for the voters of a crowd."""
        return split(self.encoder).function

    def drawn(self, records: int) -> DataChoice:
        """The same, with so many strokes drawn where their number is left open.

        >>> DataChoice().drawn(7).records, DataChoice("adult").drawn(7).records
        (7, None)
        """
        left_open = self.dataset == "strokes" and self.private is None and self.records is None
        return dataclasses.replace(self, records=records) if left_open else self


@dataclass(frozen=True)
class PartitionChoice:
    """How the private records are divided into shards."""

    teachers: int | None = None
    """Number of teachers; unset: by a rehearsal, or 125 where you set the mechanism."""
    by: Literal["record", "user"] = "record"
    """Whom the guarantee covers: one record, or all records of one user."""
    seed: int | None = None
    """Make the run reproducible and therefore NOT private. Unset: fresh entropy."""

    def __post_init__(self) -> None:
        if self.teachers is not None and self.teachers < 1:
            raise PateError(f"teachers={self.teachers} must be at least 1")

    @property
    def number(self) -> int:
        """How many teachers there are."""
        return TEACHERS if self.teachers is None else self.teachers


@dataclass(frozen=True)
class CrowdChoice:
    """How records or users vote by themselves, and what their one release may cost."""

    voters: Voting
    by: Literal["record", "user"] = "record"
    seed: int | None = None
    epsilon: float = CUSTOMARY_EPSILON
    delta: float = 1e-5
    queries: int | None = None  # of neighbours; unset: by rule
    encoder: str = ""  # module:function that makes the space; unset: by the kind of the inputs
    space: Space | None = None  # unset: the encoder's, if there is one, or by the kind of the inputs
    steps: int | None = None  # tables of sums; unset: by rule

    def __post_init__(self) -> None:
        from pate_jax.accounting.inputs import check_delta

        check_delta(self.delta)
        if self.voters not in get_args(Voting) or self.by not in ("record", "user"):
            raise PateError(
                f"voters={self.voters!r} must be one of {', '.join(get_args(Voting))}, and by={self.by!r} "
                "record or user"
            )
        if not (type(self.epsilon) in (int, float) and 0 < self.epsilon < float("inf")):
            raise PateError(f"epsilon={self.epsilon!r} must be a finite number above 0; 1 is an example")
        if self.steps is not None and not (type(self.steps) is int and 1 <= self.steps <= MOST_STEPS):
            raise PateError(f"steps={self.steps!r} must be a whole number from 1 to {MOST_STEPS}")
        if self.steps is not None and self.voters != "sums":
            raise PateError(f"--steps {self.steps} is for --voters sums: leave it out")
        if self.space is not None and self.space not in get_args(Space):
            raise PateError(f"space={self.space!r} must be one of {', '.join(get_args(Space))}")
        if self.encoder and self.space not in (None, "encoder"):
            raise PateError(
                f"--encoder {self.encoder} makes the space `encoder`, and --space {self.space} is another: "
                "leave one of them out"
            )
        if self.queries is not None and self.voters == "sums":
            raise PateError(
                f"--queries {self.queries} does not go with --voters sums, which answer for every public "
                "input: leave it out"
            )
        if self.queries is not None:
            check_queries(self.queries)


@dataclass(frozen=True)
class RunConfig:
    """A whole run: from private records to a student that may be published.

    >>> RunConfig(partition=PartitionChoice(teachers=50), out=Path("runs/mine")).directory.name
    'mine'
    """

    data: Annotated[DataChoice, OmitArgPrefixes] = field(default_factory=DataChoice)
    partition: Annotated[PartitionChoice, OmitArgPrefixes] = field(default_factory=PartitionChoice)
    out: Path | None = None
    """The run directory; unset: runs/ and the data set's name. Repeat a command to continue its run."""
    voters: Literal["teachers", "auto", Voting] = "teachers"
    """Who votes: teachers, trained on shards; or every record (or user) by itself, without training:
    neighbours for the public inputs nearest to it, or sums, by one vector in the row of its class.
    auto: those that public inputs favour."""
    epsilon: float | None = None
    """What the run may cost: the figure to publish is at most this. Unset: 1; teachers whose mechanism you
    set, and no epsilon, cost what they cost."""
    space: Space | None = None
    """For neighbours and sums: the space that sees records. Unset: your encoder's, or by the kind of inputs;
    contrast (images; a few minutes) is what a net learned of the public part. Free."""
    steps: int | None = None
    """For sums: how many tables they release, at the same cost in all. Each but the first corrects the
    classifier so far. Unset: as many as public inputs, epsilon and the number of voters favour."""
    queries: int | None = None
    """Number of public inputs that the voters are asked about; unset: as many as the noise allows, and 500
    of teachers whose mechanism you set."""
    selection: Selection | None = None
    """Which: the first of the public part, random ones, or one for each of as many clusters: kmeans compares
    pixels or columns, space what linear teachers see, learned (images; a few minutes) what a net learned of
    the public part. Free. Unset: clusters, and the first for teachers whose mechanism you set."""
    min_distance: float | None = None
    """For teachers: ask about no public input that is nearer than this to an earlier one, over the distance
    that is typical between neighbours. Free. Unset: 0.5, and none for teachers whose mechanism you set."""
    delta: float = 1e-5
    """The delta of the privacy statement; well below one over the number of private records."""
    people_about: int | None = None
    """About how many private people there are, if anyone may know: delta is at most 1 over ten times them."""
    budget_epsilon: float | None = None
    """Spend no more than this epsilon, whatever the votes: only as many inputs are asked about as it affords,
    more can be asked later, and it is the figure to publish. Unset: one list of queries, at its cost."""
    register: Path | None = None
    """The file in which all runs on these records are entered with what they may spend; unset: this user's
    own; none: somebody else counts. A run beyond its limit is refused before it trains (`pate budget`)."""
    teacher: Annotated[TeacherConfig, OmitArgPrefixes] = field(default_factory=TeacherConfig)
    student: StudentFlags = field(default_factory=Auto)
    learn_from_public_labels: bool = False
    """Let the student of a table learn from the labels of the public part too, which cost nothing."""
    mechanism: MechanismOrAuto = None
    """Unset: it follows from `--epsilon`, or with `--budget-epsilon` from the number of teachers."""

    def __post_init__(self) -> None:
        from pate_jax.accounting.inputs import check_delta, delta_beside  # which help pages do without

        check_delta(self.delta)
        if self.people_about is not None:
            object.__setattr__(self, "delta", delta_beside(self.people_about, self.delta))
        check_budget(self.budget_epsilon)
        check_distance(self.min_distance)
        if self.queries is not None:
            check_queries(self.queries)
        if isinstance(self.student, Linear) and self.voters != "sums":
            self.student.resolved(image=True)  # refuses
        if isinstance(self.student, Own) and self.learn_from_public_labels:
            raise PateError(
                "--learn-from-public-labels fits a last layer that is known, and --student.method own is a "
                "net of your own: leave out one of them"
            )
        if self.who == "teachers":
            self._check_of_teachers()
        else:
            self._check_of_crowd()

    @property
    def who(self) -> Literal["auto", "teachers", Voting]:
        """Who votes; `auto` is a crowd whose kind is still to be chosen.

        >>> RunConfig().who, RunConfig(voters="auto").who, RunConfig(voters="auto", selection="kmeans").who
        ('teachers', 'auto', 'teachers')
        """
        return "teachers" if self.voters == "auto" and self._of_teachers() else self.voters

    @property
    def budget(self) -> float | None:
        """The most that teachers may spend, whatever the votes; None: what their list costs."""
        if self.budget_epsilon is not None:
            return self.budget_epsilon
        return CUSTOMARY_EPSILON if self.epsilon is None and self.mechanism is None else self.epsilon

    def _check_of_teachers(self) -> None:
        """Refuse what only crowds take."""
        if self.epsilon is not None and self.budget_epsilon is not None:
            raise PateError(
                f"--epsilon {self.epsilon:g} and --budget-epsilon {self.budget_epsilon:g} are one thing to "
                "teachers: give one of them"
            )
        check_budget(self.epsilon)
        function = self.data.function
        given = f"--encoder {function}" if function else self.space and f"--space {self.space}"
        if given:
            raise PateError(
                f"{given} makes the space of a crowd: give --voters neighbours, sums or auto with it; linear "
                "teachers (--net linear) take theirs by --front"
            )
        if self.steps is not None:
            raise PateError(f"--steps {self.steps} is for sums: leave it out, or give --voters sums")

    def _of_teachers(self) -> list[str]:
        """What was set that only teachers take."""
        of_teachers = {
            "--teachers": self.partition.teachers is not None,
            "--budget-epsilon": self.budget_epsilon is not None,
            "--selection": self.selection is not None,
            "--min-distance": self.min_distance is not None,
            "a mechanism": self.mechanism is not None,
        }
        changed = to_settings(self.teacher).items() - to_settings(TeacherConfig()).items()
        flags = sorted("--" + name.replace("_", "-") for name, _ in changed)
        return [*(name for name, there in of_teachers.items() if there), *flags]

    def _check_of_crowd(self) -> None:
        """Refuse what only teachers take."""
        given = self._of_teachers()
        if given:
            raise PateError(
                f"{given[0]} belongs to teachers, and --voters {self.voters} trains none: leave it out; "
                "--epsilon says what the one noisy table may cost"
            )
        if self.voters == "auto" and self.steps is not None:
            raise PateError(f"--steps {self.steps} goes with voters that you choose: give --voters sums")
        self.crowd_as("neighbours" if self.voters == "auto" else cast(Voting, self.voters))  # checks the rest

    @property
    def crowd(self) -> CrowdChoice:
        """How a crowd votes; refused where teachers do, or where that is still to be chosen."""
        if self.who not in get_args(Voting):
            raise PateError(f"the voters of this run are {self.who}, and no crowd that is known already")
        return self.crowd_as(cast(Voting, self.who))

    def crowd_as(self, voters: Voting) -> CrowdChoice:
        """How a crowd of these voters votes, by the other settings."""
        return CrowdChoice(
            voters,
            self.partition.by,
            self.partition.seed,
            CUSTOMARY_EPSILON if self.epsilon is None else self.epsilon,
            self.delta,
            self.queries,
            self.data.function,
            self.space,
            self.steps,
        )

    @property
    def chosen_by(self) -> Selection:
        """Which public inputs teachers are asked about."""
        return self.selection or "first"

    @property
    def wanted(self) -> int:
        """How many public inputs teachers are asked about."""
        return QUERIES if self.queries is None else self.queries

    @property
    def directory(self) -> Path:
        """The folder of the run."""
        name = "own" if self.data.private else self.data.dataset.replace("/", "-").replace(":", "-")
        return self.out or Path("runs") / name

    @property
    def asks(self) -> int:
        """How many public inputs are asked about for certain; a budget may afford fewer than `queries`."""
        return 0 if self.budget else self.wanted


def check_queries(queries: int) -> None:
    """Refuse a number of queries below one."""
    if queries < 1:
        raise PateError(f"queries={queries} must be at least 1")


def check_distance(distance: float | None) -> None:
    """Refuse a least distance between queries that is not a finite number above 0."""
    if distance is not None and not 0 < distance < float("inf"):
        raise PateError(f"min_distance={distance} must be a finite number above 0; 0.5 is an example")


def check_budget(epsilon: float | None) -> None:
    """Refuse a budget that is not a finite number above 0."""
    if epsilon is not None and not 0 < epsilon < float("inf"):
        raise PateError(f"budget_epsilon={epsilon} must be a finite number above 0; 2 is an example")


def to_settings(choice: Any) -> dict[str, Any]:
    """A flat dataclass as JSON values; paths become absolute, and tuples become lists.

    >>> to_settings(PartitionChoice(teachers=5))
    {'teachers': 5, 'by': 'record', 'seed': None}
    """
    return {name: _to_json(value) for name, value in dataclasses.asdict(choice).items()}


def _to_json(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.resolve())
    return list(value) if isinstance(value, tuple) else value


def from_settings(kind: type[Choice], settings: dict[str, Any]) -> Choice:
    """The dataclass that `to_settings` described."""
    paths = {name for name, hint in typing.get_type_hints(kind).items() if Path in typing.get_args(hint)}
    try:
        return kind(
            **{name: Path(value) if name in paths and value else value for name, value in settings.items()}
        )
    except (TypeError, AttributeError) as error:
        raise PateError(f"these are no settings of {kind.__name__} ({error}); restore the file") from error
