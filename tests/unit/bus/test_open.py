"""From an address to a bus."""

import subprocess
import sys

from gossamer.extras import install_advice

_WITHOUT_THE_LIBRARY = """
import sys
sys.modules["confluent_kafka"] = None
from gossamer.wiring.service import open_bus
from gossamer.bus.base import Topics
from gossamer.errors import BadInput
try:
    open_bus("kafka://h:1", None, Topics(), prefix="g", retention_seconds=1, max_topic_bytes=1, kafka={}, partitions=1,
             replicas=1, max_message_bytes=9000)
except BadInput as error:
    print(error)
"""


def test_a_kafka_bus_without_its_library_says_what_to_install() -> None:
    told = subprocess.run([sys.executable, "-c", _WITHOUT_THE_LIBRARY], capture_output=True, text=True, check=True)
    assert install_advice("kafka") in told.stdout
