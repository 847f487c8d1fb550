"""Counts the prompt tokens that a lake really stores, with deltalake, which knows nothing of prefix deltas.

    stored_tokens.py LAKE_URL

Prints {"calls": n, "prompt_tokens": n, "suffix_tokens": n}.
"""

import json
import os
import sys

import pyarrow.compute
from deltalake import DeltaTable


def main(lake):
    options = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    table = DeltaTable(f"{lake.rstrip('/')}/calls", storage_options=options)
    calls = table.to_pyarrow_table(columns=["prompt_len", "prompt_suffix"])
    suffixes = pyarrow.compute.list_value_length(calls["prompt_suffix"])
    counts = {
        "calls": calls.num_rows,
        "prompt_tokens": pyarrow.compute.sum(calls["prompt_len"]).as_py(),
        "suffix_tokens": pyarrow.compute.sum(suffixes).as_py(),
    }
    print(json.dumps(counts))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
