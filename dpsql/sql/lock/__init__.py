"""The second lock: proves from the text that goes to the engine what one privacy unit can move."""
