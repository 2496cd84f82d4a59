"""The scripts of answers that wait, a command each."""
