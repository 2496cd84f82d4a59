"""Searches the properties in OpenSearch: `python near.py angel 51.5322 -0.1058`.

Prints price and title of those whose title contains the word, sorted by their distance from the point (latitude and
longitude). ES_PIPELINE_URL is the address of the index, as for the crawl.
"""

import argparse
import os
import sys
from typing import Any

import httpx

INDEX = os.environ.get("ES_PIPELINE_URL", "http://localhost:9200/properties")


def query(word: str, lat: float, lon: float, size: int) -> dict[str, Any]:
    """Return the search, in the server's own language."""
    by_distance = {"_geo_distance": {"location": {"lat": lat, "lon": lon}, "order": "asc", "unit": "km"}}
    return {
        "query": {"match": {"title": word}},
        "sort": [by_distance, "price"],
        "size": size,
        "track_total_hits": True,
    }


def main() -> str | None:
    """Search, and print what is found. Returns a message if it fails."""
    parser = argparse.ArgumentParser(description="Find properties near a point.")
    parser.add_argument("word", help="word of the title")
    parser.add_argument("lat", type=float, help="latitude")
    parser.add_argument("lon", type=float, help="longitude")
    parser.add_argument("--size", type=int, default=10, help="results")
    given = parser.parse_args()
    try:
        answer = httpx.post(f"{INDEX}/_search", json=query(given.word, given.lat, given.lon, given.size))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{INDEX} cannot be reached: {error}. ES_PIPELINE_URL names another index."
    if answer.is_error:
        return f"{INDEX} answered {answer.status_code}. Has a crawl with this ES_PIPELINE_URL stored properties there?"
    found = answer.json()["hits"]
    if not found["hits"]:
        print(f"No property has {given.word!r} in its title.")
        return None
    print(f"{found['total']['value']} properties have {given.word!r} in their title. The nearest:")
    for hit in found["hits"]:
        item = hit["_source"]
        print(f"{float(hit['sort'][0]):6.2f} km  £{item['price']:9,.2f}  {item['title']}")
    return None


if __name__ == "__main__":
    sys.exit(main())
