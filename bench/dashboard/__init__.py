"""Measurements of the dashboard: a log that is followed, pages of large lists, and browsers that follow them."""
