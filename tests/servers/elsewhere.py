"""A plugin for pytest that sends requests for port 6800 of this machine to another port.

    GOSSAMER_TEST_PORT=40123 PYTHONPATH=FOLDER-WITH-THIS-FILE pytest -p elsewhere …

Scrapyd's own tests name port 6800, on which something else may listen. It stands alone: the environment in which it
runs has pytest and requests, and nothing of Gossamer.
"""

import os
from typing import Any

from urllib3.util import connection

_connect = connection.create_connection


def _connect_elsewhere(address: tuple[str, int], *arguments: Any, **named: Any) -> Any:
    host, port = address
    return _connect((host, int(os.environ["GOSSAMER_TEST_PORT"]) if port == 6800 else port), *arguments, **named)


connection.create_connection = _connect_elsewhere
