"""Shorter ways through Scrapy's engine: the same calls in the same order, without the steps that have no effect.

Scrapy passes a request through four Deferreds and seven tasks, and each object that a callback yields through one
asynchronous generator for each middleware. Where all parts are Scrapy's own, one task does the same work
(`flow.py`), middlewares that have nothing to do are not called (`middlewares.py`), objects pass the spider middlewares
in a loop (`pages.py`), items the pipelines (`items.py`), and signals and log lines without a receiver are not made
(`notices.py`).

A part that the project overrides, replaces or wraps is called as Scrapy calls it (`parts.py` finds out), and so is
every part of a Scrapy that is newer than those that were compared with this package.

Fixed: what a project can see: its methods are called with the same arguments in the same order, and statistics, log
lines, signals and the engine's attributes (the sets of active requests, the slots) are those of Scrapy.
"""
