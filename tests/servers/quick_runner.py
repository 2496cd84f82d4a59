"""A stand-in for the platform's runner that starts in a moment, and the command line with it.

    python -m tests.servers.quick_runner scrapyd …      the server, whose jobs are run by this file
    python quick_runner.py list|crawl FOLDER            what the server starts

A job notes its begin, its beats and its end in the file that the argument `judge` names.
"""

import fcntl
import json
import os
import sys
import time


def note(judge: str, event: str, job: str) -> None:
    """Add a line with the time of the machine, which all processes share."""
    with open(judge, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({"event": event, "job": job, "pid": os.getpid(), "at": time.monotonic()}) + "\n")


def crawl(folder: str) -> None:
    """Run for the argument `seconds`; end as the argument `end` says."""
    with open(os.path.join(folder, "job.json")) as file:
        arguments = json.load(file)["arguments"]
    judge, name = arguments["judge"], arguments["_job"]
    note(judge, "begin", name)
    last = time.monotonic() + float(arguments["seconds"])
    while time.monotonic() < last:
        time.sleep(0.05)
        note(judge, "beat", name)
    note(judge, "end", name)
    if arguments["end"] == "good":
        with open(os.path.join(folder, "report.json"), "w") as file:
            json.dump({"finish_reason": "finished", "stats": {}}, file)
    elif arguments["end"] == "code":
        os._exit(3)


def list_spiders(folder: str) -> None:
    """Every project has one spider."""
    with open(os.path.join(folder, "spiders.json"), "w") as file:
        json.dump(["quick"], file)


def main(runner_file: str = __file__) -> None:
    """Run the command line of Gossamer with this file, or another one of its kind, as the runner."""
    from gossamer.__main__ import main as run
    from gossamer_platform.node import runner

    runner.__file__ = os.path.abspath(runner_file)
    sys.argv[0] = "gossamer"
    run()


if __name__ == "__main__":
    if sys.argv[1] in ("crawl", "list"):
        {"crawl": crawl, "list": list_spiders}[sys.argv[1]](sys.argv[2])
    else:
        main()
