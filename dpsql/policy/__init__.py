"""The data owner's policy.

model.py       its declarations
tables.py      tables, columns and formats of text sources; names of time zones that every engine knows
toml.py        exact numbers and positions of TOML; values set in a policy's text, with its comments kept
validate.py    checks of values
unit_guess.py  guesses of the privacy unit's column
"""
