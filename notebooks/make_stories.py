"""Write the notebooks of stories, run them, and store their outputs.

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
"""Each notebook has its own NAME, and so its own policy file and ledger."""

WIDE = 'text = text.replace("medical_dollars = { bounds = [0, 2000] }", "medical_dollars = { bounds = [0, 100_000] }")\n'
"""Wide bounds for the notebook that finds bounds privately."""

CHOOSING = [
    """# Choosing privately

Often the question is not *how many* but *which*: which group is the first large one, which price earns most, which
bound cuts off little. A noisy number for every candidate costs budget for each. The sparse vector
technique pays for the hits only, and the exponential mechanism for one choice.

The policy is the demo's, with a larger budget for all examples of this notebook.""",
    OPEN.replace('Path("NAME', WIDE + 'Path("NAME').replace("NAME", "choosing"),
    """## The first candidate above a threshold

Candidates are a public table or a CTE; they are tested in its order. What is the first age with fewer than
2,500 person-years at that age or above?""",
    """%%dpsql
WITH ages(a) AS (SELECT 5 * i FROM range(13) AS t(i))
SELECT a AS age, ABOVE_THRESHOLD(-COUNT(*) FILTER (WHERE age >= a), -2500, epsilon => 1) OVER ages FROM visits""",
    """Without candidates it is a question about one number, answered TRUE or FALSE.""",
    """%%dpsql
SELECT ABOVE_THRESHOLD(COUNT(*), 100, epsilon => 0.1) AS enough FROM visits WHERE doctor_visits > 20""",
    """## Popular items, with answers for them

`max_hits` allows several hits, and `answer => TRUE` releases a fresh number for each, from a separate share of ε.""",
    """%%dpsql
WITH sizes(n) AS (SELECT * FROM range(1, 11))
SELECT n AS family_size, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE family_size = n), 2500, epsilon => 2, max_hits => 5, answer => TRUE)
  OVER sizes AS person_years FROM visits""",
    """## Range queries: only the large ones

All ranges are counted in one pass over the data.""",
    """%%dpsql ranges
WITH ranges(lo, hi) AS (SELECT 5 * i, 5 * i + 5 FROM range(13) AS t(i))
SELECT lo, hi, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE age >= lo AND age < hi), 1800, epsilon => 2, max_hits => 6, answer => TRUE)
  OVER ranges AS person_years FROM visits""",
    """%matplotlib inline
ax = ranges.plot("lo", "person_years")
ax.axhline(1800, linestyle=":", color="gray")
ax.set_xlabel("age, from (five years each)");""",
    """The whiskers show the noise of the answers. The choice has separate noise, so near the line it errs on either side. A skipped range
was found too small. The search stops after the sixth hit, so nothing is known about later ranges.""",
    """## A clipping bound, and the mean that uses it

The policy of this notebook allows costs up to 100,000 dollars a year, far above most values: noise for these
bounds would hide the mean. Which power of two cuts off fewer than 200 rows? One threshold answers this question:""",
    """%%dpsql
WITH bounds(b) AS (SELECT power(2, i) FROM range(4, 16) AS t(i))
SELECT b, ABOVE_THRESHOLD(-COUNT(*) FILTER (WHERE medical_dollars > b), -200, epsilon => 1) OVER bounds FROM visits""",
    """`AUTO` does this inside `SUM` and `AVG`, with part of the same ε, and a note shows the bounds that it found. Without it the noise is for the
policy's bounds. Neither interval includes the effect of clipping: a few costs above the bound count as the bound.""",
    """%%dpsql
SELECT WITH DP OPTIONS (epsilon = 1) AVG(medical_dollars, contribution_bounds_per_row => AUTO) AS dollars FROM visits;
SELECT WITH DP OPTIONS (epsilon = 1) AVG(medical_dollars) AS dollars FROM visits""",
    """## The price with the best revenue

The exponential mechanism chooses the candidate with the highest utility, or one with a similar utility. Here everyone who paid at least the price
for care buys a year's subscription: revenue is the price times the number of buyers. Candidates have different
sensitivities (one person changes a revenue by the price), and the mechanism uses each.""",
    """%%dpsql
WITH prices(p) AS (VALUES (10), (25), (50), (100), (200), (400), (800))
SELECT p AS price, EXPMECH(p * COUNT(*) FILTER (WHERE medical_dollars >= p), epsilon => 2) OVER prices FROM visits""",
    """## A split that balances two groups

A utility may be any expression of counts and bounded sums with a known sensitivity: sums, differences, public
multiples, `ABS`, `GREATEST` and `LEAST`. Which age splits the person-years into two halves? A row is on one side only, so the difference of the two
counts changes by at most one person's rows. Minus its absolute value is the utility.""",
    """%%dpsql
WITH ages(a) AS (SELECT * FROM range(1, 65))
SELECT a AS age, EXPMECH(-ABS(COUNT(*) FILTER (WHERE age < a) - COUNT(*) FILTER (WHERE age >= a)), epsilon => 1) OVER ages FROM visits""",
    """What is the first age at which one of two plans has fewer than 1,000 person-years at that age or above?""",
    """%%dpsql
WITH ages(a) AS (SELECT 5 * i FROM range(13) AS t(i))
SELECT a AS age, ABOVE_THRESHOLD(-LEAST(COUNT(*) FILTER (WHERE age >= a AND plan = 'free'), COUNT(*) FILTER (WHERE age >= a AND plan = '95%')),
  -1000, epsilon => 1) OVER ages FROM visits""",
    """A product or a quotient of two private numbers has no such bound, and is refused with an alternative: to
compare `a / b` with a public `p`, write `-ABS(a - p * b)`.""",
    """## The most common answers

`top => 2` selects the two best; `answer => TRUE` also releases their counts.""",
    """%%dpsql
WITH states(h) AS (VALUES ('excellent'), ('good'), ('fair'), ('poor'))
SELECT h AS health, EXPMECH(COUNT(*) FILTER (WHERE health = h), epsilon => 2, top => 2, answer => TRUE) OVER states AS person_years
FROM visits""",
    """The cost and the quality of the choice are known in advance:""",
    """%%dpsql --explain
SELECT plan, EXPMECH(COUNT(*) FILTER (WHERE visits.plan = plans.plan), epsilon => 1) OVER plans FROM visits""",
    """## An alarm for many questions

A declared threshold is paid for once, in advance. The questions may be chosen one after another; only answers
above the threshold use it up.""",
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

Some functions have no useful bound on the effect of one person: a median, a mode, a spread, a model. Three methods can release
them nevertheless. *Propose, test, release*: if the data are far from any table with another answer, release the exact
answer. *Inverse sensitivity*: choose an answer by its distance from the data. *Subsample and aggregate*: run any function on many blocks of people, and combine the blocks' results privately.""",
    OPEN.replace("NAME", "stable_answers").replace("epsilon = 30", "epsilon = 50"),
    """## The spread of spending

`IQR` is tested on the scale of powers of two, then released with multiplicative noise. A failed test returns NULL, and
costs as much as a passed one. Here one random row of each person counts.""",
    """%%dpsql
SELECT WITH PTR OPTIONS (epsilon = 4, delta = 1e-7, max_rows_contributed = 1) IQR(age) AS spread_of_age, MEDIAN(family_size) AS median_family,
       MODE(plan) AS most_common_plan FROM visits""",
    """You may also propose the local sensitivity of an answer:""",
    """%%dpsql
SELECT WITH PTR OPTIONS (epsilon = 4, delta = 1e-7, max_rows_contributed = 1) MEDIAN(age, local_sensitivity => 2) AS median_age FROM visits""",
    """Quantiles, ranges and modes of numbers accept a proposal too; the mode may be at the end of the statement.""",
    """%%dpsql
SELECT QUANTILE_DISC(age, 0.9, local_sensitivity => 2) AS old, IQR(age, local_sensitivity => 2) AS spread FROM visits
WITH PTR OPTIONS (epsilon = 4, delta = 1e-7, max_rows_contributed = 1)""",
    """A mean needs no proposal. A twentieth of the rows at each end is left out, and the test is on the order of magnitude of one person's effect on
the rest. Only declared bounds are used.""",
    """%%dpsql
WITH PTR OPTIONS (epsilon = 4, delta = 1e-7, max_rows_contributed = 1)
SELECT AVG(age) AS usual_age, STDDEV(age) AS spread_of_the_middle FROM visits""",
    """The most common site in each plan: exact, if it is stable.""",
    """%%dpsql
SELECT WITH PTR OPTIONS (epsilon = 2, delta = 1e-7, max_rows_contributed = 1) plan, MODE(site) AS most_common_site FROM visits GROUP BY plan ORDER BY plan""",
    """## Without a test: inverse sensitivity

Why not add noise for the sensitivity of *these* people's answer? Because that is private too: it may be 0 here, and the
whole range without one of these people. `SELECT WITH STABLE` reverses the question. For each public answer it computes the number of rows to add or remove until that
answer is exact. Answers with smaller numbers are more likely, and one person changes this number by at most one. The guarantee is pure ε without δ, and the result is never NULL.""",
    """%%dpsql
SELECT WITH STABLE OPTIONS (epsilon = 1, max_rows_contributed = 1) IQR(age) AS spread_of_age FROM visits""",
    """PTR answers this question with the same ε and a δ:""",
    """%%dpsql
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-7, max_rows_contributed = 1) IQR(age) AS spread_of_age FROM visits""",
    """A third method, noise for the whole range of 65 years, would be off by ±195. EXPLAIN gives the expected errors of STABLE before
payment, for several numbers of rows.""",
    """%%dpsql --explain
SELECT WITH STABLE OPTIONS (epsilon = 1, max_rows_contributed = 1)
       IQR(age) AS spread_of_age, TRIMMED_MEAN(doctor_visits, 0.1) AS usual_visits, MODE(health) AS usual_health FROM visits""",
    """A mean without the tenth of rows at each end, and the most common state of health, in each plan:""",
    """%%dpsql
SELECT WITH STABLE OPTIONS (epsilon = 2, max_rows_contributed = 1) plan, TRIMMED_MEAN(doctor_visits, 0.1) AS usual_visits,
       MODE(health) AS usual_health FROM visits GROUP BY plan ORDER BY plan""",
    """## Any function on blocks

A correlation has no small sensitivity, but its values on 512 blocks of people do not vary much. Their median is
released, with an interval.""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, blocks = 512, bounds = (-1, 1)) CORR(age, doctor_visits) AS r FROM visits""",
    """Means of the blocks need more noise, as the plan says before payment.""",
    """%%dpsql --explain
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, blocks = 512, bounds = (-1, 1), combine = 'mean') CORR(age, doctor_visits) AS r FROM visits""",
    """If the range of the results is unknown, `bounds = AUTO` releases a result on which 512 blocks agree, or NULL. It tests whether the order of
magnitude of their spread is stable, which needs a δ.""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, delta = 1e-7, bounds = AUTO) REGR_SLOPE(doctor_visits, family_size) AS slope FROM visits""",
    """## Votes: which plan do people use most doctors in?

Each block has one vote. `stable_mode` releases the winner exactly if its lead is large enough.""",
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

A whole query may vote, too: which of three columns best predicts the number of doctor visits, by the share of the
variance that a linear model explains?""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, blocks = 64, combine = 'noisy_mode', candidates = ('age', 'disease_index', 'family_size'))
       CASE WHEN a >= d AND a >= f THEN 'age' WHEN d >= f THEN 'disease_index' ELSE 'family_size' END AS best_column
FROM (SELECT REGR_R2(doctor_visits, age) AS a, REGR_R2(doctor_visits, disease_index) AS d, REGR_R2(doctor_visits, family_size) AS f FROM visits)""",
    """## Feature selection: votes of a lasso

On each block a lasso (least squares with an L1 penalty) keeps a few of nine features. One person changes one
block, and so at most `most` votes each way. The noise of all nine counts covers this change, not nine separate queries.""",
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
    """`top = 2` selects only the two best features from these lists, for any number of features.""",
    """%%dpsql
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 4, blocks = 32, combine = 'noisy_votes', top = 2, candidates = ('age', 'family_size',
    'family_income', 'education', 'disease_index', 'mental_health', 'general_health', 'coinsurance', 'year'))
  kept_by_a_lasso(doctor_visits, age, family_size, family_income, education, disease_index, mental_health, general_health, coinsurance, year)
  AS feature FROM visits""",
    """## Analysts with raw data

Forty analysts get the rows of one block each, analyse them freely, and name the statistics that they find worth
publishing. The method trusts no analyst, and each uses a different approach: some look at correlations, some at
the difference between the sick and the well, some at quantiles. The release is the noisy number of analysts who named each statistic.""",
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
    """The statistics themselves need further statements at an extra cost. With few analysts, `stable_mode` would almost never release
an exact winner: at ε = 1 and δ = 10⁻⁶ some 37 must agree, for any number of statistics.""",
    """## A model's weights: logistic regression

Which people see a doctor at all within a year? Each block fits a logistic regression, and a private median combines the weights one by one. With
a δ each weight gets more than an equal part of ε. `length` declares the number of weights, so that the price is known in advance.""",
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
    """EXPLAIN shows the cost of the textbook's own sampling before it runs:""",
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
    """Return the notebook, without outputs."""
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
