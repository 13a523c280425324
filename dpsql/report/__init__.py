"""The owner's report, and the displays of budget and ledger.

data.py                the report as plain data, from one pass over the ledger
figures.py             distinct charges; curves, errors, groups and accountants side by side
charge_explanation.py  the parts of a charge and, for the owner, cheaper options
pages.py               the report as HTML, text, JSON or CSV
charts.py              axes, lines and marks as inline SVG
tables.py              tables and the budget panel, as text and HTML
"""
