"""Program that reads prices, one a line, and writes each times a factor: `python convert.py 1.20`.

`python convert.py 1.20 3 0.25` takes 3 seconds to start and 0.25 seconds for a line, as slow programs do.
"""

import sys
import time

factor, start_seconds, line_seconds = map(float, [*sys.argv[1:], "0", "0"][:3])
time.sleep(start_seconds)
for line in sys.stdin:
    time.sleep(line_seconds)
    try:
        print(f"{float(line) * factor:.2f}", flush=True)
    except ValueError:  # no price: the answer is the line itself
        print(line, end="", flush=True)
