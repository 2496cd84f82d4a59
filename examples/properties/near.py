"""Searches the properties in OpenSearch: `python near.py angel 51.5322 -0.1058`.

Prints price and title of those whose title contains the word, sorted by their distance from the point (latitude and
longitude). ES_PIPELINE_URL is the address of the index, as for the crawl.
"""

import argparse
import os
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


def main() -> None:
    parser = argparse.ArgumentParser(description="Find properties near a point.")
    parser.add_argument("word", help="word of the title")
    parser.add_argument("lat", type=float, help="latitude")
    parser.add_argument("lon", type=float, help="longitude")
    parser.add_argument("--size", type=int, default=10, help="results")
    given = parser.parse_args()
    answer = httpx.post(f"{INDEX}/_search", json=query(given.word, given.lat, given.lon, given.size))
    found = answer.raise_for_status().json()["hits"]
    print(f"{found['total']['value']} properties have {given.word!r} in their title. The nearest:")
    for hit in found["hits"]:
        item = hit["_source"]
        print(f"{hit['sort'][0]:6.2f} km  £{item['price']:9,.2f}  {item['title']}")


if __name__ == "__main__":
    main()
