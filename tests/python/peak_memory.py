"""Runs a program and says how much memory it held at most.

    peak_memory.py PROGRAM [ARGUMENT...]

Prints {"status": n, "stdout": text, "stderr": text, "peak_bytes": n}.
"""

import json
import resource
import subprocess
import sys


def main(command):
    ended = subprocess.run(command, capture_output=True, text=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    print(json.dumps(dict(status=ended.returncode, stdout=ended.stdout, stderr=ended.stderr, peak_bytes=peak * unit)))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
