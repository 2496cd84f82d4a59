"""Schedules under fire: two managers fire them, one at a time is killed; a judge reads which jobs were made."""
