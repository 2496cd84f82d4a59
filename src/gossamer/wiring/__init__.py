"""From settings to running parts: the only reader of settings. Everything below gets plain arguments."""
