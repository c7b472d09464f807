# %% [markdown]
# # First run
#
# A whole run in a few seconds: private records are drawn, ten teachers learn from a shard each, they vote
# on public inputs, noise is added, and a student learns from the answers. It is far too small for good
# privacy or a good student; `pate run` does the same at full size.

# %%
import tempfile
from pathlib import Path

from pate_jax import ConfidentDiscreteGaussian, RunConfig
from pate_jax.ensemble import TeacherConfig
from pate_jax.runs import pipeline
from pate_jax.runs.settings import DataChoice, PartitionChoice
from pate_jax.student import Supervised

out = Path(tempfile.mkdtemp()) / "run"
config = RunConfig(
    data=DataChoice("strokes", records=400),
    partition=PartitionChoice(teachers=10),
    teacher=TeacherConfig(net="mlp", epochs=4, min_steps=20),
    student=Supervised(net="mlp", steps=60),
    mechanism=ConfidentDiscreteGaussian(threshold=6, sigma_threshold=3.0, sigma=2.0),
    queries=40,
    out=out,
)
results = pipeline.run(config)

# %% [markdown]
# ## What it came to
#
# A query is answered only where enough teachers agree, so some are refused.

# %%
print(f"{results['answered']} of {results['queries']} queries answered")
assert 0 < results["answered"] <= results["queries"] == 40

# %% [markdown]
# ## What may be said in public
#
# The statement holds several figures. *Publishable* ones hold for any private records; *sensitive* ones are
# computed from the votes and stay in `private/`. `release/` is the folder to hand over.

# %%
figures = results["statement"]["figures"]
for name, figure in figures.items():
    print(f"{name:17} epsilon {figure['epsilon']}  {figure['status']}")
assert figures["data_independent"]["status"] == "publishable"
assert (out / "release" / "report.html").is_file()
