"""Pages of the dashboard about the platform: projects, jobs, schedules, groups, nodes, tokens.

They ask /v1 for all that they show, in this process or over HTTP, so a crawl service can show them, too. Fixed for
that: nothing here but `gate.py` imports the database.
"""
