"""Starting points over the index pages: `python -m properties.shards --indexes 1667 --shards 20 > starts.csv`."""

import argparse
import csv
import itertools
import sys

from properties.site import at


def shards(indexes: int, count: int) -> list[dict[str, str]]:
    """Return `count` starting points, evenly spaced: the URL of an index page, and the number of pages up to the next
    point."""
    begins = [indexes * number // count for number in range(count + 1)]
    return [
        {"url": at(f"/properties/index_{begin:05d}.html"), "pages": str(end - begin)}
        for begin, end in itertools.pairwise(begins)
        if begin < end
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write starting points over the index pages, as CSV.")
    parser.add_argument("--indexes", type=int, default=1667, help="index pages of the site")
    parser.add_argument("--shards", type=int, default=20, help="starting points")
    given = parser.parse_args()
    table = csv.DictWriter(sys.stdout, ["url", "pages"], lineterminator="\n")
    table.writeheader()
    table.writerows(shards(given.indexes, given.shards))
