"""A newcomer's first hour with a Parquet file of their own, cell by cell in IPython's shell, mistakes included."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.support import newcomer
from tests.support.newcomer import Step


def look(step: Step, text: str, failed: bool) -> None:
    """Check what stands below a step's cell."""
    assert failed == step.fails, (step.cell, text)
    for words in step.shows:
        assert words in text, (step.cell, text)
    for words in step.hides:
        assert words not in text, (step.cell, text)
    assert not step.fails or len(text.splitlines()) <= 6, text


def test_every_cell_of_the_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run without a page: the cells and what they show in a terminal, until the budget is out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    newcomer.write_rides(tmp_path)
    assert len(newcomer.HOUR) >= 30
    shell = InteractiveShell(colors="nocolor")
    try:
        for step in (*newcomer.HOUR, newcomer.SPEND, newcomer.OUT):
            done = shell.run_cell(step.cell, store_history=False)
            look(step, capsys.readouterr().out.strip("\n"), not done.success)
    finally:
        shell.run_line_magic("dpsql", "close")
        shell.run_line_magic("unload_ext", "dpsql")
        shell.history_manager.end_session()
