"""Threads that ask one session at once, and the policy that they ask under."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import dpsql

POLICY = """
budget = {{ epsilon = {epsilon}, delta = 0.5, accountant = "basic", default_epsilon = 1000, default_delta = 1e-6 }}
[tables]
t = {{ privacy_unit = "u", max_rows = 1, max_groups = 1, columns = {{ x = {{ bounds = [0, 10] }} }} }}
"""
COUNT = "SELECT COUNT(*) AS n FROM t WHERE x <= {}"
PATIENCE = 120
"""Seconds after which a thread that has not answered is taken for one that waits for ever."""


def ask_at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """Return what each job gives, or the error that it raises, when all begin together."""
    start = threading.Barrier(len(jobs))

    def work(job: Callable[[], Any]) -> Any:
        start.wait(PATIENCE)
        try:
            return job()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [found.result(PATIENCE) for found in [pool.submit(work, job) for job in jobs]]


def spent(session: dpsql.Session) -> Fraction:
    return session.budget().spent_epsilon
