"""Write the notebooks that each tell one story, and run them, so that they are shown with their outputs.

python notebooks/make_stories.py [02 03 ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).resolve().parent

OPEN = """\
from pathlib import Path
import dpsql

demo = Path(dpsql.__file__).parent / "demo"
text = (demo / "policy.toml").read_text()
text = text.replace("epsilon = 3\\n", "epsilon = 30\\n").replace('max_epsilon_per_query = 2', 'max_epsilon_per_query = 5')
text = text.replace('"visits.parquet"', f'"{demo}/visits.parquet"').replace('"plans.parquet"', f'"{demo}/plans.parquet"')
Path("NAME.toml").write_text(text)
%load_ext dpsql
%dpsql connect --policy NAME.toml"""
"""NAME is the notebook's own, so that the ledger beside the policy is its own too."""

# A line that starts with "# " is prose; any other is a cell. Cells are told apart by blank lines.
WIDE = 'text = text.replace("medical_dollars = { bounds = [0, 2000] }", "medical_dollars = { bounds = [0, 100_000] }")\n'
"""For the notebook in which bounds are found: there the owner knows little of them."""

CHOOSING = [
    """# Choosing privately

Often the question is not *how many* but *which*: which is the first group that is large, which price earns most, which
bound cuts off little. Releasing a noisy number for every candidate would pay for all of them. The sparse vector
technique pays for the hits only, and the exponential mechanism for one choice.

The policy is the demo's, with a larger budget, so that all of these fit in one notebook.""",
    OPEN.replace('Path("NAME', WIDE + 'Path("NAME').replace("NAME", "choosing"),
    """## The first candidate above a threshold

Candidates are a public table or a CTE; they are asked in its order. Which age is the first from which fewer than
2,500 person-years are left?""",
    """%%dpsql
WITH ages(a) AS (SELECT 5 * i FROM range(13) AS t(i))
SELECT a AS age, ABOVE_THRESHOLD(-COUNT(*) FILTER (WHERE age >= a), -2500, epsilon => 1) OVER ages FROM visits""",
    """Without candidates it is a question about one number, answered TRUE or FALSE.""",
    """%%dpsql
SELECT ABOVE_THRESHOLD(COUNT(*), 100, epsilon => 0.1) AS enough FROM visits WHERE doctor_visits > 20""",
    """## Popular items, with answers for them

`max_hits` allows several, and `answer => TRUE` releases a fresh number for each hit, from a share of its own.""",
    """%%dpsql
WITH sizes(n) AS (SELECT * FROM range(1, 11))
SELECT n AS family_size, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE family_size = n), 2500, epsilon => 2, max_hits => 5, answer => TRUE)
  OVER sizes AS person_years FROM visits""",
    """## Range queries: only the large ones

All ranges are counted in one pass over the data, however many there are.""",
    """%%dpsql ranges
WITH ranges(lo, hi) AS (SELECT 5 * i, 5 * i + 5 FROM range(13) AS t(i))
SELECT lo, hi, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE age >= lo AND age < hi), 1800, epsilon => 2, max_hits => 6, answer => TRUE)
  OVER ranges AS person_years FROM visits""",
    """%matplotlib inline
ax = ranges.plot("lo", "person_years")
ax.axhline(1800, linestyle=":", color="gray")
ax.set_xlabel("age, from (five years each)");""",
    """The answers' whiskers are their own noise; the choice was another one, and near the line it errs on either side. A range
that was passed over was found too small. After the sixth hit nothing more is asked, so of the ranges behind it nothing is known.""",
    """## A clipping bound, and the mean that uses it

The policy of this notebook lets a year's costs be up to 100,000 dollars, far more than most are: noise for a mean between such
bounds would drown it. Which power of two cuts off fewer than 200 rows? That is a question about one threshold:""",
    """%%dpsql
WITH bounds(b) AS (SELECT power(2, i) FROM range(4, 16) AS t(i))
SELECT b, ABOVE_THRESHOLD(-COUNT(*) FILTER (WHERE medical_dollars > b), -200, epsilon => 1) OVER bounds FROM visits""",
    """`AUTO` asks it for you inside `SUM` and `AVG`, out of the same ε, and a note says which bounds it found; without it the noise is for the
policy's bounds. The price of clipping is in neither interval: a few costs above the bound found count as the bound.""",
    """%%dpsql
SELECT WITH DP OPTIONS (epsilon = 1) AVG(medical_dollars, contribution_bounds_per_row => AUTO) AS dollars FROM visits;
SELECT WITH DP OPTIONS (epsilon = 1) AVG(medical_dollars) AS dollars FROM visits""",
    """## The price with the best revenue

The exponential mechanism chooses the candidate with the highest utility, or one near it. Here a year's subscription is sold
to everybody who paid at least its price for care: revenue is the price times the number of buyers. Candidates differ in
how far one person moves them (a price moves its revenue by the price), and are treated accordingly.""",
    """%%dpsql
WITH prices(p) AS (VALUES (10), (25), (50), (100), (200), (400), (800))
SELECT p AS price, EXPMECH(p * COUNT(*) FILTER (WHERE medical_dollars >= p), epsilon => 2) OVER prices FROM visits""",
    """## A split that balances two groups

A utility may be any form of counts and bounded sums that one row moves by a known distance: sums, differences, public
multiples, `ABS`, `GREATEST` and `LEAST`. Which age splits the person-years into two halves? The difference of the two
counts moves by one person's rows, so minus its size is a utility; a row is on one side only.""",
    """%%dpsql
WITH ages(a) AS (SELECT * FROM range(1, 65))
SELECT a AS age, EXPMECH(-ABS(COUNT(*) FILTER (WHERE age < a) - COUNT(*) FILTER (WHERE age >= a)), epsilon => 1) OVER ages FROM visits""",
    """And what is the first age from which one of two plans has fewer than 1,000 person-years left?""",
    """%%dpsql
WITH ages(a) AS (SELECT 5 * i FROM range(13) AS t(i))
SELECT a AS age, ABOVE_THRESHOLD(-LEAST(COUNT(*) FILTER (WHERE age >= a AND plan = 'free'), COUNT(*) FILTER (WHERE age >= a AND plan = '95%')),
  -1000, epsilon => 1) OVER ages FROM visits""",
    """A product or a quotient of two private numbers has no such distance, and is refused with a word on what to write instead: to
compare `a / b` with a public `p`, write `-ABS(a - p * b)`.""",
    """## The most common answers

`top => 2` peels off the two best; `answer => TRUE` tells how large they are.""",
    """%%dpsql
WITH states(h) AS (VALUES ('excellent'), ('good'), ('fair'), ('poor'))
SELECT h AS health, EXPMECH(COUNT(*) FILTER (WHERE health = h), epsilon => 2, top => 2, answer => TRUE) OVER states AS person_years
FROM visits""",
    """What it would cost, and how good the choice will be, is known before:""",
    """%%dpsql --explain
SELECT plan, EXPMECH(COUNT(*) FILTER (WHERE visits.plan = plans.plan), epsilon => 1) OVER plans FROM visits""",
    """## An alarm that is asked again and again

A declared threshold is paid for once, up front. The questions may be chosen one after another; only those that are
above it use it up.""",
    """%%dpsql
DECLARE alarm ABOVE_THRESHOLD 4000 OPTIONS (epsilon = 2, max_hits = 2)""",
    """%%dpsql
SELECT WITH alarm COUNT(*) FROM visits WHERE plan = '50%';
SELECT WITH alarm COUNT(*) FROM visits WHERE plan = '95%';
SELECT WITH alarm COUNT(*) FROM visits WHERE plan = 'free'""",
    """%%dpsql
CLOSE alarm""",
    """%dpsql budget""",
]

STABLE = [
    """# Stable answers

Some functions have no useful bound on what one person may change: a median, a mode, a spread, a model. Three ways to release
them all the same. *Propose, test, release*: if the data are far from any table with another answer, the answer may come out
as it is. *Inverse sensitivity*: choose an answer by how far the data are from having it. *Subsample and aggregate*: run anything on many blocks of people, and combine the blocks' results privately.""",
    OPEN.replace("NAME", "stable_answers").replace("epsilon = 30", "epsilon = 50"),
    """## The spread of spending

`IQR` is tested on the scale of powers of two, then released with a factor of noise. A test that fails gives NULL, and is
paid for like one that passes. Here one row of each person is taken, at random.""",
    """%%dpsql
SELECT WITH PTR OPTIONS (epsilon = 4, delta = 1e-7, max_rows_contributed = 1) IQR(age) AS spread_of_age, MEDIAN(family_size) AS median_family,
       MODE(plan) AS most_common_plan FROM visits""",
    """An answer may also be proposed with how far one person can move it:""",
    """%%dpsql
SELECT WITH PTR OPTIONS (epsilon = 4, delta = 1e-7, max_rows_contributed = 1) MEDIAN(age, local_sensitivity => 2) AS median_age FROM visits""",
    """Quantiles, ranges and modes of numbers take a proposal too; the mode may stand at the end of the statement.""",
    """%%dpsql
SELECT QUANTILE_DISC(age, 0.9, local_sensitivity => 2) AS old, IQR(age, local_sensitivity => 2) AS spread FROM visits
WITH PTR OPTIONS (epsilon = 4, delta = 1e-7, max_rows_contributed = 1)""",
    """A mean needs no proposal: a twentieth of the rows at each end is left out, and the order of magnitude of how far one person can
move the rest is what is tested. No bounds are used but those that the owner declared.""",
    """%%dpsql
WITH PTR OPTIONS (epsilon = 4, delta = 1e-7, max_rows_contributed = 1)
SELECT AVG(age) AS usual_age, STDDEV(age) AS spread_of_the_middle FROM visits""",
    """The most common site in each plan: exact, where it is stable.""",
    """%%dpsql
SELECT WITH PTR OPTIONS (epsilon = 2, delta = 1e-7, max_rows_contributed = 1) plan, MODE(site) AS most_common_site FROM visits GROUP BY plan ORDER BY plan""",
    """## Without a test: inverse sensitivity

Why not add noise by how far one person moves the answer of *these* people? Because that is private too: it may be 0 here, and the
whole range for the same people less one. `SELECT WITH STABLE` turns the question round. Each public answer weighs the less, the
more rows would have to come or go to make it the exact one, and nobody moves that number by more than one. Pure ε, no δ, never NULL.""",
    """%%dpsql
SELECT WITH STABLE OPTIONS (epsilon = 1, max_rows_contributed = 1) IQR(age) AS spread_of_age FROM visits""",
    """The same question to PTR, with the same ε and a δ:""",
    """%%dpsql
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-7, max_rows_contributed = 1) IQR(age) AS spread_of_age FROM visits""",
    """The third way, noise for the whole range of 65 years, would be off by ±195. EXPLAIN compares the three before anything is
paid. How many people took part in the experiment is published, so the comparison may use it.""",
    """%%dpsql --explain
SELECT WITH STABLE OPTIONS (epsilon = 1, max_rows_contributed = 1, units = 5912)
       IQR(age) AS spread_of_age, TRIMMED_MEAN(doctor_visits, 0.1) AS usual_visits, MODE(health) AS usual_health FROM visits""",
    """A mean without the tenth of rows at each end, and the most common state of health, in each plan:""",
    """%%dpsql
SELECT WITH STABLE OPTIONS (epsilon = 2, max_rows_contributed = 1) plan, TRIMMED_MEAN(doctor_visits, 0.1) AS usual_visits,
       MODE(health) AS usual_health FROM visits GROUP BY plan ORDER BY plan""",
    """## Anything on blocks

A correlation has no small sensitivity, but its value on each of 512 blocks of people does not vary much. Their median is
released, and an interval for it.""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, blocks = 512, bounds = (-1, 1)) CORR(age, doctor_visits) AS r FROM visits""",
    """Means of the blocks would need more noise: the plan compares, before anything is spent.""",
    """%%dpsql --explain
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, blocks = 512, bounds = (-1, 1), combine = 'mean') CORR(age, doctor_visits) AS r FROM visits""",
    """Where nobody knows the range of the results, `bounds = AUTO` releases what 512 blocks agree on, or NULL: whether the order of
magnitude of their spread is stable is tested, which takes a δ.""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, delta = 1e-7, bounds = AUTO) REGR_SLOPE(doctor_visits, family_size) AS slope FROM visits""",
    """## Votes: which plan do people use most doctors in?

Each block answers for itself, and the blocks vote. `stable_mode` releases the winner exactly if it leads by enough.""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, delta = 1e-7, combine = 'stable_mode')
       ARG_MAX(plan, total) AS plan
FROM (SELECT plan, SUM(doctor_visits) AS total FROM visits GROUP BY plan)""",
    """## Model selection by a Python function

A registered function runs on each block's rows. Here it picks, by the error on the second half of the block, which of three
models of doctor visits is best: the mean, the mean by health, or a line in age.""",
    """import numpy as np

def best_model(age, visits, health):
    keep = np.isfinite(age.astype(float))
    age, visits, health = age[keep].astype(float), visits[keep].astype(float), health[keep]
    half = len(age) // 2
    train, test = slice(0, half), slice(half, None)
    overall = visits[train].mean()
    by_health = {h: visits[train][health[train] == h].mean() for h in set(health[train])}
    slope, intercept = np.polyfit(age[train], visits[train], 1)
    guesses = {
        "mean": np.full(len(visits[test]), overall),
        "by health": np.array([by_health.get(h, overall) for h in health[test]]),
        "line in age": slope * age[test] + intercept,
    }
    return min(guesses, key=lambda m: float(((guesses[m] - visits[test]) ** 2).mean()))

session = %dpsql session
session.register("best_model", best_model)""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, blocks = 64, combine = 'noisy_mode', candidates = ('mean', 'by health', 'line in age'))
       best_model(age, doctor_visits, health) AS model FROM visits""",
    """## Model selection by a query

A whole query may vote, too: which of three columns says most about the number of doctor visits, by the share of the
variance that a line in it explains?""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, blocks = 64, combine = 'noisy_mode', candidates = ('age', 'disease_index', 'family_size'))
       CASE WHEN a >= d AND a >= f THEN 'age' WHEN d >= f THEN 'disease_index' ELSE 'family_size' END AS best_column
FROM (SELECT REGR_R2(doctor_visits, age) AS a, REGR_R2(doctor_visits, disease_index) AS d, REGR_R2(doctor_visits, family_size) AS f FROM visits)""",
    """## Feature selection: votes of a lasso

On each block a lasso (least squares with a price on every weight) keeps a few of nine features. One person changes one
block, and so at most `most` votes each way: all nine counts are released with noise for that, not for nine separate queries.""",
    """import numpy as np

NAMES = ["age", "family_size", "family_income", "education", "disease_index", "mental_health", "general_health", "coinsurance", "year"]

def kept_by_a_lasso(visits, *columns):
    x, y = np.column_stack(columns).astype(float), visits.astype(float)
    rows = np.isfinite(x).all(axis=1) & np.isfinite(y)
    x, y = x[rows], y[rows]
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
    y = (y - y.mean()) / max(y.std(), 1e-9)
    weights, price = np.zeros(x.shape[1]), 0.09
    for _ in range(50):  # one weight after another, each drawn towards zero
        for j in range(len(weights)):
            without = y - x @ weights + x[:, j] * weights[j]
            pull = x[:, j] @ without / len(y)
            weights[j] = np.sign(pull) * max(abs(pull) - price, 0)
    return [NAMES[j] for j in np.argsort(-abs(weights)) if weights[j]]

session.register("kept_by_a_lasso", kept_by_a_lasso)""",
    """%%dpsql
votes << SELECT WITH SUBSAMPLE OPTIONS (epsilon = 4, blocks = 32, combine = 'noisy_votes', most = 4, candidates = ('age', 'family_size',
    'family_income', 'education', 'disease_index', 'mental_health', 'general_health', 'coinsurance', 'year'))
  kept_by_a_lasso(doctor_visits, age, family_size, family_income, education, disease_index, mental_health, general_health, coinsurance, year)
  AS feature FROM visits""",
    """%matplotlib inline
import matplotlib.pyplot as plt

rows = sorted(votes.dicts(), key=lambda row: row["votes"])
reach = votes.intervals["votes"][0]
fig, ax = plt.subplots(figsize=(6, 3.2))
ax.barh([row["feature"] for row in rows], [row["votes"] for row in rows], xerr=(reach[1] - reach[0]) / 2, color="#7aa6c2", ecolor="gray")
ax.axvline(32, linestyle=":", color="gray")
ax.set_xlabel("noisy votes of 32 blocks, with what the noise may be (95%)")
fig.tight_layout()""",
    """The same lists give the best features alone: `top = 2` peels them off, whatever the number of features.""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 4, blocks = 32, combine = 'noisy_votes', top = 2, candidates = ('age', 'family_size',
    'family_income', 'education', 'disease_index', 'mental_health', 'general_health', 'coinsurance', 'year'))
  kept_by_a_lasso(doctor_visits, age, family_size, family_income, education, disease_index, mental_health, general_health, coinsurance, year)
  AS feature FROM visits""",
    """## Analysts with raw data

Forty analysts get the rows of one block each, do with them what they like, and name the statistics that they find worth
publishing. No analyst is trusted to be private, and each asks in a way of their own: some look at correlations, some at
the difference between the sick and the well, some at quantiles. What is released is how many named which.""",
    """def correlates(visits, column):
    return abs(np.corrcoef(visits, column)[0, 1]) > 0.15

def separates(visits, column):
    high = column > np.median(column)
    return 0 < high.sum() < len(high) and abs(visits[high].mean() - visits[~high].mean()) > 0.25 * visits.std()

def shifts(visits, column):
    often, never = column[visits >= np.quantile(visits, 0.75)], column[visits == 0]
    return len(never) > 5 and abs(np.median(often) - np.median(never)) > 0.2 * column.std()

def analyst(visits, *columns):
    habit = [correlates, separates, shifts][len(visits) % 3]  # who gets a block depends on the block
    rows = np.isfinite(np.column_stack(columns).astype(float)).all(axis=1)
    return [name for name, column in zip(NAMES, columns) if habit(visits[rows].astype(float), column[rows].astype(float))]

session.register("analyst", analyst)""",
    """%%dpsql
named << SELECT WITH SUBSAMPLE OPTIONS (epsilon = 4, blocks = 40, combine = 'noisy_votes', most = 4, candidates = ('age', 'family_size',
    'family_income', 'education', 'disease_index', 'mental_health', 'general_health', 'coinsurance', 'year'))
  analyst(doctor_visits, age, family_size, family_income, education, disease_index, mental_health, general_health, coinsurance, year)
  AS statistic FROM visits""",
    """from itertools import islice

rows = sorted(named.dicts(), key=lambda row: -row["votes"])
reach = named.intervals["votes"][0]
fig, ax = plt.subplots(figsize=(6, 3))
ax.bar([row["statistic"] for row in rows], [row["votes"] for row in rows], yerr=(reach[1] - reach[0]) / 2, color="#c2a37a", ecolor="gray")
ax.set_ylabel("noisy votes of 40 analysts")
ax.tick_params(axis="x", rotation=30)
fig.tight_layout()
print("worth publishing:", ", ".join(row["statistic"] for row in islice(rows, 3)))""",
    """The statistics themselves are then asked for at a price of their own. With few analysts, an exact winner (`stable_mode`) would
almost never come out: at ε = 1 and δ = 10⁻⁶ some 37 must agree, however many statistics there are.""",
    """## A model's weights: logistic regression

Who sees a doctor at all within a year? Each block fits its own logistic regression, and its weights are combined one by one by a private median. With
a δ the weights share more than equal parts of ε. `length` says how many there are, so that the price is known before.""",
    """def weights(visits, age, sick):
    x = np.column_stack([np.ones(len(age)), age.astype(float) / 30 - 1, sick.astype(float)])
    y, w = visits.astype(float) > 0, np.zeros(3)
    for _ in range(8):  # Newton's method, with a little weight decay, so that every block has an answer
        p = 1 / (1 + np.exp(-x @ w))
        w += np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + np.eye(3), x.T @ (y - p) - w)
    return list(w)

session.register("weights", weights, returns="DOUBLE", length=3)""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 4, delta = 1e-7, blocks = 128, combine = 'median', bounds = (-5, 5))
  weights(doctor_visits, age, CAST(health IN ('fair', 'poor') AS INTEGER)) AS weights FROM visits""",
    """What the textbook's own sampling would take is priced before it runs:""",
    """%%dpsql --explain
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, delta = 1e-6, combine = 'stable_mode', sampling = 'bernoulli', units = 5912) MODE(plan) AS plan FROM visits""",
    """%dpsql budget""",
]

STORIES = {
    "02_choosing_privately.ipynb": CHOOSING,
    "03_stable_answers.ipynb": STABLE,
}


def _is_code(text: str) -> bool:
    return text.startswith(("%", "import ", "from ", "def "))


def notebook(cells: list[str]) -> nbformat.NotebookNode:
    """The notebook, without outputs."""
    made = [new_code_cell(text) if _is_code(text) else new_markdown_cell(text) for text in cells]
    for i, node in enumerate(made):
        node["id"] = f"cell-{i:02}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=made, metadata={"kernelspec": kernel})


def main(wanted: list[str]) -> None:
    from make_more import run_notebook

    for name, cells in STORIES.items():
        if not wanted or name.startswith(tuple(wanted)):
            made = notebook(cells)
            run_notebook(made)
            nbformat.write(made, HERE / name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
