"""Schedules: make jobs by a cron line, at an interval, or once."""
