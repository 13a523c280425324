"""The demo's tables, and statements that are compared with plain DuckDB."""

from __future__ import annotations

from pathlib import Path

import dpsql
from tests.support.case_files import read_part

DEMO = Path(dpsql.__file__).parent / "demo"
BUDGET = """
[budget]
epsilon = 1e12
delta = 1e-6
accountant = "basic"
max_epsilon_per_query = 1e11
default_epsilon = 1e9
default_delta = 1e-9
"""
COLUMNS = """
year = { values = [1, 2, 3, 4, 5] }
site = { values = [1, 2, 3, 4, 5, 6] }
plan = { values = ["free", "25%", "50%", "95%", "deductible"] }
health = { values = ["excellent", "good", "fair", "poor"] }
coinsurance = { bounds = [0, 100] }
share_of_year = { bounds = [0, 1] }
age = { bounds = [0, 65] }
family_size = { bounds = [1, 14] }
family_income = { bounds = [0, 30000] }
education = { bounds = [0, 25] }
general_health = { bounds = [0, 100] }
doctor_visits = { bounds = [0, 77] }
other_visits = { bounds = [0, 110] }
admissions = { bounds = [0, 8] }
outpatient_dollars = { bounds = [0, 2600] }
medical_dollars = { bounds = [0, 40000] }
"""
POLICY = f"""{BUDGET}
[tables.visits]
source = "visits.parquet"
UNIT
[tables.visits.columns]
{COLUMNS}
[tables.plans]
source = "plans.parquet"
public = true
"""
PERSON = 'privacy_unit = "person_id"\nmax_rows = 5\nmax_groups = 5'
ROW = 'privacy_unit = "ROW"'
ANY_UNIT = read_part(__file__, "ANY_UNIT")
PERSON_ONLY = read_part(__file__, "PERSON_ONLY")
CASES = [(unit, case) for unit in ("person", "row") for case in ANY_UNIT] + [
    ("person", c) for c in PERSON_ONLY
]
