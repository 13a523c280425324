"""Fixtures of the ledger's tests."""

from __future__ import annotations

from tests.support.ledgers import ledger, path, policy, register, reopen

__all__ = ["ledger", "path", "policy", "register", "reopen"]
