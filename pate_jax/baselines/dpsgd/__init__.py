"""DP-SGD (Abadi et al. 2016): a net trained on private records by clipped gradients with noise.

settings      what is chosen, and `choose`, which chooses it from public numbers
calibration   who takes part in a step, how much noise that takes, and what it costs under both relations
gradients     the sum of clipped gradients, in whole numbers, and what is added to it
training      `fit`, which does all of this, and what comes out
"""

from typing import TYPE_CHECKING

from pate_jax.system.exports import on_demand

if TYPE_CHECKING:
    from pate_jax.baselines.dpsgd.calibration import Plan, plan
    from pate_jax.baselines.dpsgd.settings import Settings, choose
    from pate_jax.baselines.dpsgd.training import Fitted, fit, size

__all__ = ["Fitted", "Plan", "Settings", "choose", "fit", "plan", "size"]

_HOMES = {
    "Plan": "calibration",
    "plan": "calibration",
    "Settings": "settings",
    "choose": "settings",
    "Fitted": "training",
    "fit": "training",
    "size": "training",
}
__getattr__ = on_demand(__name__, _HOMES)
