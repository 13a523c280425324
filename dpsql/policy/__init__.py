"""The data owner's policy.

model.py       its declarations
tables.py      tables, columns and formats of text sources
toml.py        TOML with exact numbers and positions
validate.py    checks of values
unit_guess.py  guesses at the column of the privacy unit
"""
