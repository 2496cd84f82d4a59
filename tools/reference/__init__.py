"""Writes the reference pages from the tables that the program itself reads."""
