"""What a registered Python function returns: a type that is declared beforehand, and public."""

from __future__ import annotations

import decimal
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

Kind = Literal["DOUBLE", "BIGINT", "VARCHAR", "BOOLEAN"]
_ARROW = {"DOUBLE": pa.float64(), "BIGINT": pa.int64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_()}


@dataclass(frozen=True)
class Returns:
    """A declared type: of one value, or of the elements of a list.

    Args:
        kind: the SQL type. many: whether the function returns a list of such. length: how long each list is; None where
            they may differ.
    """

    kind: Kind
    many: bool = False
    length: int | None = None

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a result."""
        return pa.list_(_ARROW[self.kind]) if self.many else _ARROW[self.kind]

    def fit(self, result: Any) -> Any:
        """The result of one block as the declared type; None for what does not fit, which is no result.

        Nothing is said of a result that does not fit: it was made of private rows.
        """
        try:
            return self._list(result) if self.many else self._one(result)
        except Exception:  # an object of somebody's own making: whatever it raises
            return None

    def _list(self, result: Any) -> list[Any] | None:
        if not isinstance(result, list | tuple | np.ndarray) or isinstance(result, np.ma.MaskedArray):
            return None
        found = [self._one(part) for part in result]
        wrong = None in found or (self.length is not None and len(found) != self.length)
        return None if wrong else found

    def _one(self, value: Any) -> Any:
        if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
            value = value.item()
        if self.kind == "VARCHAR":
            return value if type(value) is str else None
        if self.kind == "BOOLEAN":
            return value if type(value) is bool else None
        if isinstance(value, bool) or not isinstance(value, numbers.Real | decimal.Decimal):
            return None
        if self.kind == "DOUBLE":
            return float(value)
        whole = int(float(value)) if not isinstance(value, int) else value
        return whole if whole == value and -(2**63) <= whole < 2**63 else None


@dataclass(frozen=True)
class Registered:
    """A Python function that SUBSAMPLE may run, and what it returns; None where that is not declared."""

    function: Callable[..., Any]
    returns: Returns | None = None
