"""The history of crawls in a SQL database: what they were, how they ended, what failed, how fast they were.

The frontier, the store of waiting requests, forgets a finished crawl after a while. A historian (services/historian.py)
copies its state here. Every write may be repeated, and may be made by several processes: a row is named by what it is
about, and holds counters as they were, never sums of what a process saw.
"""
