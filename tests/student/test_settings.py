"""Settings of students: one dataclass a method, from flags, from files of earlier versions, and refused."""

import re

import pytest
import tyro
from tyro.conf import FlagCreatePairsOff

from pate_jax import models
from pate_jax.cli.student import REGISTRY
from pate_jax.errors import PateError
from pate_jax.runs.settings import StudentFlags, to_settings
from pate_jax.student import Auto, FixMatch, Gan, Own, Ridge, Supervised, Tandem, Vat, from_dict, named
from pate_jax.student.methods import METHODS
from pate_jax.student.settings import KINDS, NETS, names

# As `settings.json` held them when all methods shared one set of settings.
EARLIER = {
    "method": "auto", "net": None, "maps": None, "steps": None, "batch_size": None, "unlabelled": None,
    "learning_rate": None, "weight_decay": 1e-3, "label_smoothing": None, "shift": None, "flip": False,
    "average": 0.998, "weight": None, "confidence": 0.95, "strength": 1.0, "distort_answers": True,
    "alignment": 0.0, "radius": 0.2, "entropy": 0.3, "latent": 64, "hold_out": 0.0, "patience": 0,
    "devices": None,
}  # fmt: skip


def parsed(default, *flags):
    def command(student: StudentFlags = default):
        return student

    return tyro.cli(command, args=flags, config=(FlagCreatePairsOff,), registry=REGISTRY)


def test_every_kind_of_settings_has_its_method_and_no_other():
    assert set(METHODS) == KINDS.keys() - {"auto", "linear"}
    assert all(kind().method == name for name, kind in KINDS.items())
    assert set(NETS) <= set(models.NETS)


@pytest.mark.parametrize(
    ("default", "flags", "wanted"),
    [
        (Auto(), "", Auto()),
        (Auto(), "--student.steps 9 --student.confidence 0.9", Auto(steps=9, confidence=0.9)),
        (Auto(), "--student.method vat --student.steps 9", Vat(steps=9)),
        (Auto(), "--student.method own --student.net a.b:C --student.steps 9", Own(net="a.b:C", steps=9)),
        (Auto(), "--student.method ridge", Ridge()),
        (Auto(net="resnet"), "--student.method gan --student.latent 3", Gan(net="resnet", latent=3)),
        (Tandem(flip=True), "", Tandem(flip=True)),
        (Tandem(flip=True, alignment=1.0), "--student.no-flip", Tandem(alignment=1.0)),
        (Tandem(flip=True, alignment=1.0), "--student.method supervised", Supervised(flip=True)),
        (
            Tandem(alignment=1.0),
            "--student.method fixmatch --student.no-distort-answers --student.maps 4 8",
            FixMatch(alignment=1.0, distort_answers=False, maps=(4, 8)),
        ),
    ],
)
def test_flags_go_over_the_defaults(default, flags, wanted):
    assert parsed(default, *flags.split()) == wanted


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--student.method vat --student.confidence 0.8", "no setting of vat; leave it out, or .* fixmatch"),
        (
            "--student.method ridge --student.steps 3",
            "steps=3 is no setting of ridge: ridge has a net of its",
        ),
        ("--student.method supervised --student.weight 2", "weight=2.0 is no setting of supervised"),
        ("--student.steps 0", "steps=0 must be above 0"),
    ],
)
def test_flags_that_a_method_does_not_take_are_refused_by_name(flags, said, capsys):
    with pytest.raises(SystemExit):
        parsed(Auto(), *flags.split())
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert re.search(said, shown), shown


def test_an_unknown_method_and_an_unknown_setting_are_refused():
    with pytest.raises(PateError, match="method='gnan' must be one of auto, supervised, own"):
        named("gnan")
    with pytest.raises(PateError, match="speed=3 is no setting of any method"):
        named("vat", speed=3)
    with pytest.raises(PateError, match="net='big' must be one of mlp"):
        Vat(net="big")
    with pytest.raises(PateError, match="is no setting of own"):
        named("own", alignment=1.0)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_is_recorded_now_is_read_again(kind):
    config = kind(**({"maps": (4, 8)} if "maps" in names(kind) else {}))
    assert from_dict(to_settings(config)) == config


@pytest.mark.parametrize(("name", "value"), [("method", "gnan"), ("speed", 3)])
def test_a_record_of_no_method_is_refused(name, value):
    with pytest.raises(PateError, match=r"no settings of a student .*restore the file"):
        from_dict({**EARLIER, name: value})
