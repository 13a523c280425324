"""The ``[server]`` section of a policy: the grid of answer times, and the limits of what analysts may send.

None of it is part of the policy's fingerprint: it changes when answers leave and what is refused for its size, and
neither what is drawn nor what that costs.
"""

from __future__ import annotations

import datetime
import itertools
import zoneinfo
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import PolicyError
from dpsql.policy import validate
from dpsql.policy.toml import Section, declare_field

MAX_ANSWER_TIMES = 1000
"""Times of the grid that a policy may list; beyond the last one they double."""
_DAY = 86_400
_EARLIEST = Fraction(1, 1000)


def settle_answer_times(key: str, value: object) -> tuple[Fraction, ...]:
    """Read rising times in seconds; an empty list switches the grid off."""
    if not isinstance(value, list | tuple) or len(value) > MAX_ANSWER_TIMES:
        raise PolicyError(f"{key} are a list of seconds.", hint=f"{key} = [0.25, 0.5, 1, 2, 4]")
    times = tuple(validate.settle_positive(key, item) for item in value)
    if any(later <= earlier for earlier, later in itertools.pairwise(times)):
        raise PolicyError(f"{key} must rise.", hint=f"{key} = [0.25, 0.5, 1, 2, 4]")
    if times and not (times[0] >= _EARLIEST and times[-1] <= _DAY):
        raise PolicyError(f"{key} lie between a millisecond and a day.", hint=f"{key} = [0.25, 0.5, 1, 2, 4]")
    return times


def settle_time_zone(key: str, value: object) -> str:
    """Read the name of a time zone of this machine, such as UTC or Europe/Amsterdam."""
    name = validate.settle_text(key, value)
    if name == "UTC":
        return name
    try:
        datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise PolicyError(
            f"there is no time zone {name}.", hint=f'{key} = "Europe/Amsterdam", or "UTC".'
        ) from None
    return name


@dataclass(frozen=True)
class ServerRules(Section):
    """The times and limits of ``dpsql serve``.

    Args:
        answer_times: seconds after a request at which an answer that touched private data may leave; beyond the last one they
            double. An empty list switches this off: answers leave when they are ready, and their times tell about the data.
        time_zone: the time zone of all workers.
        keep_text_days: days for which the ledger keeps the texts of statements, with their stored answers; by default all are
            kept.
        max_statement_bytes: the largest text of a request.
        max_parameter_bytes: the largest parameters of a request, all together.
        max_result_bytes: the largest answer that is sent, and the largest release that is stored.
        max_requests_per_minute: requests of one analyst.
        max_sessions: open sessions of one analyst.
        max_idle_minutes: minutes after which a session that asks nothing is closed, with its thresholds.
        max_memory_mb: memory of one analyst's worker.
        max_seconds: seconds that a statement may run; one that runs longer is stopped and stays charged.
    """

    answer_times: tuple[Fraction, ...] = declare_field(
        settle_answer_times, (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
    )
    time_zone: str = declare_field(settle_time_zone, "UTC")
    keep_text_days: int | None = declare_field(validate.settle_whole)
    max_statement_bytes: int = declare_field(validate.settle_whole, 100_000)
    max_parameter_bytes: int = declare_field(validate.settle_whole, 1_000_000)
    max_result_bytes: int = declare_field(validate.settle_whole, 100_000_000)
    max_requests_per_minute: int = declare_field(validate.settle_whole, 600)
    max_sessions: int = declare_field(validate.settle_whole, 8)
    max_idle_minutes: int = declare_field(validate.settle_whole, 60)
    max_memory_mb: int = declare_field(validate.settle_whole, 4096)
    max_seconds: int = declare_field(validate.settle_whole, 600)

    def _check_together(self) -> None:
        if self.max_memory_mb < _LEAST_MEMORY:
            raise PolicyError(
                "no worker runs with so little memory.",
                keys=("max_memory_mb",),
                hint=f"{_LEAST_MEMORY} is the least.",
            )


_LEAST_MEMORY = 256
