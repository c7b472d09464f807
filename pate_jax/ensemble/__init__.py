"""All teachers as one program: `vmap` inside a device, `pmap` over devices, in waves that fit into memory.

reading     the user's own code is read before it trains: it must keep teachers apart
inline      the same teachers as pure functions, for somebody else's `jit` and mesh
settings    `TeacherConfig`: what a user may set, with a recipe for each net
teacher     how ONE teacher learns: pure functions of its own key and its own shard
feeding     host arrays of the private records -> what one round of teachers is fed
programs    those functions for devices x width teachers at once; the only file that names pmap
plan        how many teachers share a vmap, and in which form: from a committed table and measured memory
waves       the loop over epochs, rounds and waves; restarts of teachers that failed; the report as JSON
checkpoint  what is on disk, what a resumed run must agree on, and how finished teachers are read
training    `fit`: all of it
prediction  `predict` and `vote`: labels per teacher, or histograms summed on the device
"""

from typing import TYPE_CHECKING

from pate_jax.system.exports import on_demand

if TYPE_CHECKING:
    from pate_jax.ensemble.inline import functions, shards_of
    from pate_jax.ensemble.prediction import predict, score, vote
    from pate_jax.ensemble.settings import RECIPES, TeacherConfig
    from pate_jax.ensemble.teacher import Own
    from pate_jax.ensemble.training import fit
    from pate_jax.ensemble.waves import Teachers

__all__ = [
    "RECIPES",
    "Own",
    "TeacherConfig",
    "Teachers",
    "fit",
    "functions",
    "predict",
    "score",
    "shards_of",
    "vote",
]

_HOMES = {
    **dict.fromkeys(("predict", "score", "vote"), "prediction"),
    **dict.fromkeys(("RECIPES", "TeacherConfig"), "settings"),
    **dict.fromkeys(("functions", "shards_of"), "inline"),
    "Own": "teacher",
    "Teachers": "waves",
    "fit": "training",
}
__getattr__ = on_demand(__name__, _HOMES)
