"""The owner's report, and the displays of budget and ledger.

data.py                the report as plain data, from one pass over the ledger; the parts of a charge
figures.py             distinct charges; curves, errors, groups and accountants side by side
pages.py               the report as HTML with inline SVG, text, JSON or CSV
tables.py              tables and the budget panel, as text and HTML
"""
