"""The second lock: proves from an exact query's text how far one privacy unit moves it."""
