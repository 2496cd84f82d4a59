"""A consumer of scraped items as projects on scrapy-redis have one: SOCKET KEY COUNT. It prints the items' URLs."""

import json
import sys

from gossamer.scrapy.redis import get_redis


def main() -> None:
    socket, key, count = sys.argv[1:]
    server = get_redis(unix_socket_path=socket)
    for _ in range(int(count)):
        found = server.blpop([key], 30)
        if found is None:
            raise SystemExit(f"{key} stays empty")
        source, data = found
        print(source.decode(), json.loads(data)["url"])


if __name__ == "__main__":
    main()
