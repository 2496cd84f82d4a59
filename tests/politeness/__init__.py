"""Whether a whole cluster keeps to its budgets, as the web that it visits sees it: `python -m tests.politeness`."""
