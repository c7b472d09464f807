# %% [markdown]
# # A clinic's table
#
# A clinic wants to publish a model that says who is in danger, and no patient may leak. Its table has codes,
# words, gaps and several visits a patient. Here the table is made up: 24,000 private visits, 400 visits that
# another clinic has made public with their outcomes, and 1,500 to judge by.

# %%
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import pate_jax

folder = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)


def visits(clinic: str, patients: int, each: int) -> pd.DataFrame:
    """So many visits of so many patients each; about one in seven dies."""
    count = patients * each
    stage = random.choice([1, 2, 3, 4, 5], count, p=[0.1, 0.4, 0.3, 0.15, 0.05])
    age, pulse = random.normal(65, 14, count).round(), random.normal(88, 17, count).round()
    lactate, creatinine = (random.lognormal(mean, 0.5, count).round(2) for mean in (0.6, 0.1))
    risk = np.array([-1.2, -0.8, 0.9, 0.4, 2.0])[stage - 1]  # a code is no straight line
    risk += 0.04 * (age - 65) + 0.02 * (pulse - 88) + np.log(lactate) + 0.5 * np.log(creatinine)
    dead = risk - 3.0 + random.logistic(size=count) > 0
    lactate[random.random(count) < 0.3] = np.nan  # not measured
    names = np.repeat([f"{clinic}-{number:05d}" for number in random.permutation(patients)], each)
    columns = {"patient": names, "stage": stage, "age": age, "pulse": pulse, "lactate": lactate}
    columns |= {"creatinine": creatinine, "sex": random.choice(["f", "m"], count)}
    return pd.DataFrame({**columns, "died": np.where(dead, "yes", "no")})


private, public, test = visits("ours", 12_000, 2), visits("theirs", 400, 1), visits("third", 1500, 1)
print(private.head())

# %% [markdown]
# ## One call
#
# `by="user"` with the column of patients covers all visits of one patient together. The public outcomes may
# be learned from, since they are public. Nothing else has to be said: codes become indicators, gaps are
# filled and marked, and what is chosen follows from public rows and from `epsilon`.

# %%
result = pate_jax.run(
    private,
    public,
    test,
    label="died",
    user="patient",
    by="user",
    epsilon=1.0,
    voters="sums",
    learn_from_public_labels=True,
    positive="yes",
    by_group="sex",
    register="none",  # these people are made up: leave this out, and runs on the same people add up
    out=folder / "run",
)
print(result)
print(result.statement.model_card_line())

# %% [markdown]
# ## What did the private records buy?
#
# The first rows cost no privacy. The student has to be better than they are.

# %%
for row in result.facts["bought"]:
    print(f"{row['name']:26} right on {row['right'] / row['inputs']:.1%}, AUROC {row['auroc']:.3f}")

# %% [markdown]
# ## As a clinic judges
#
# Few die, so accuracy hides them. The same figures, with pictures, are on the owner's page,
# `private/report.html`, and in the model card.

# %%
measures = result.facts["measures"]
area, low, high = measures["auroc"]
print(f"AUROC {area:.3f} (95% interval {low:.3f} to {high:.3f})")
print(f"calibration error {measures['calibration_error']:.3f}")
for row in measures["thresholds"]:
    found, healthy = row["sensitivity"][0], row["specificity"][0]
    print(
        f"called at {row['threshold']:.0%}: {found:.0%} of the dead found, {healthy:.0%} of the others let go"
    )

# %% [markdown]
# ## Use what may leave
#
# The student in `release/` takes a data frame with the columns of the clinic, and needs no labels.

# %%
student = pate_jax.Student.load(folder / "run" / "release")
new = test.drop(columns="died").head(5)
print(new.assign(danger=student.predict_proba(new)[:, list(student.classes_).index("yes")].round(3)))
