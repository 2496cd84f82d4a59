"""A crawl of the hostile web next to a healthy one, as a program that anyone can run again."""
