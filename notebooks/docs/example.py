"""Write the example of the how-to pages into this folder: a clinic's visits, made up, and their policy.

python example.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

POLICY = """\
[budget]
epsilon = 8
delta = 1e-6
default_epsilon = 0.1

[tables.visits]
source = "visits.parquet"
privacy_unit = "patient_id"      # everything about one patient is hidden
max_rows = 16                    # visits of one patient that count in one statement, in all
max_groups = 4                   # groups that one patient counts in

[tables.visits.columns]
day = { bounds = [2025-01-01, 2025-12-31] }
ward = { values = ["cardiology", "children", "emergency", "eyes", "surgery"] }
age = { bounds = [0, 100] }
minutes = { bounds = [0, 240] }
amount = { bounds = [0, 500] }

[tables.offers]
source = "offers.parquet"
privacy_unit = "patient_id"
max_rows = 1                     # one answer of each patient

[tables.offers.columns]
most = { bounds = [0, 100] }

[tables.wards]
source = "wards.parquet"
public = true
"""

# Hashes of row numbers look like chance, and are the same each time.
_TABLES = {
    "visits": """
        SELECT patient_id, DATE '2025-01-01' + CAST((u1 * 0.7 + u2 * 0.3) * 364 AS INTEGER) AS day,
            CASE WHEN age < 16 AND u3 < 0.7 THEN 'children' WHEN u3 < 0.4 THEN 'emergency' WHEN u3 < 0.6 THEN 'surgery'
                WHEN u3 < 0.85 THEN 'cardiology' ELSE 'eyes' END AS ward,
            age, CAST(10 + 170 * u2 * u4 AS INTEGER) AS minutes, ROUND(20 + 15 / (0.03 + u5), 2) AS amount
        FROM (
            SELECT CAST(hash(i * 8) % 8000 AS INTEGER) AS patient_id,
                hash(i * 8 + 1) % 99991 / 99991 AS u1, hash(i * 8 + 2) % 99991 / 99991 AS u2,
                hash(i * 8 + 3) % 99991 / 99991 AS u3, hash(i * 8 + 4) % 99991 / 99991 AS u4,
                hash(i * 8 + 5) % 99991 / 99991 AS u5,
                CAST((hash(hash(i * 8) % 8000) % 9973 / 9973) ** 1.3 * 95 AS INTEGER) AS age
            FROM range(24000) AS t(i))""",
    "offers": """
        SELECT CAST(i AS INTEGER) AS patient_id,
            CAST(5 + 60 * (hash(i + 1) % 997 / 997) * (hash(-i) % 997 / 997) AS INTEGER) AS most
        FROM range(3000) AS t(i)""",
    "wards": """
        SELECT * FROM (VALUES ('cardiology', 40), ('children', 25), ('emergency', 30), ('eyes', 12), ('surgery', 55))
            AS t(ward, beds)""",
}


def write(folder: str | Path = ".") -> None:
    """Write the three tables and policy.toml into a folder."""
    place = Path(folder)
    with duckdb.connect() as con:
        for name, query in _TABLES.items():
            con.execute(f"COPY ({query}) TO '{place / name}.parquet' (FORMAT parquet)")
    (place / "policy.toml").write_text(POLICY, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write())
