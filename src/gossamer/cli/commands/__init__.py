"""The commands, one module for each or for a few. `cli/app.py` has the table of them."""
