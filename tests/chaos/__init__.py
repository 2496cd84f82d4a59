"""Whole clusters under fire: seeded faults while they crawl, and afterwards the web's log is compared with its graph.

python -m tests.chaos --seeds 50
"""
