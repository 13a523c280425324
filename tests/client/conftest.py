"""Fixtures of the client's tests."""

from __future__ import annotations

from tests.support.clinic_server import data, folder, server

__all__ = ["data", "folder", "server"]
