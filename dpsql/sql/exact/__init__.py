"""The exact queries as the engine gets them: written in one normal form, and checked before they are paid for."""
