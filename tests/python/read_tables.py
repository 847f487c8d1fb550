"""Reads the tables of a lake with deltalake and with Polars, neither of which knows of Rollbook.

    read_tables.py LAKE_URL [TABLE...]

LAKE_URL is a folder or s3://bucket/prefix (then the AWS_* variables say how to reach it). Prints one JSON object:

    {table: {"rows": n, "version": n, "keys": checksum, "columns": [...]}, ...}

`keys` is an order-free checksum over the key columns below, the same for equal rows in any order: the sum modulo 2^63 of
the first 8 bytes (big-endian, top bit cleared) of the sha256 of each row's key values as text, nulls written as \\N and
values joined by the unit separator (0x1f). `rollbook_testing::checksum` computes the same.
The program fails if the two readers do not get the same rows.
"""

import hashlib
import json
import os
import sys

import polars
from deltalake import DeltaTable

KEYS = {
    "runs": ["run_id", "revision"],
    "policies": ["run_id", "policy_id", "policy_version", "revision"],
    "encodings": ["encoding_id", "revision"],
    "imports": ["import_id"],
    "rejects": ["import_id", "file", "line"],
    "rollouts": ["run_id", "rollout_id", "revision"],
    "calls": ["run_id", "rollout_id", "call_id", "prompt_len", "output_len", "output_digest"],
    "call_payloads": ["run_id", "call_id", "name"],
    "token_signals": ["run_id", "call_id", "name"],
    "environment_records": ["run_id", "record_id"],
    "scores": ["run_id", "score_id"],
    "step_metrics": ["run_id", "step", "name"],
    "derivations": ["derivation_id"],
    "rewards": ["derivation_id", "run_id", "rollout_id", "call_id"],
    "credits": ["derivation_id", "run_id", "rollout_id", "call_id"],
    "builds": ["build_id"],
    "samples": ["build_id", "epoch", "step", "micro_batch", "rank", "row_index"],
    "exclusions": ["build_id", "rollout_id", "call_id", "position", "length", "reason"],
    "audits": ["audit_id"],
    "findings": ["audit_id", "check", "run_id", "rollout_id", "call_id", "position"],
    "quarantine": ["level", "reason", "audit_id"],
}


def storage_options():
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def checksum(columns):
    """The order-free checksum of rows given as equally long lists of values."""
    total = 0
    for row in zip(*columns):
        text = "\x1f".join("\\N" if value is None else str(value) for value in row)
        digest = hashlib.sha256(text.encode()).digest()
        total += int.from_bytes(digest[:8], "big") & (2**63 - 1)
    return total % 2**63


def with_deltalake(url, keys):
    table = DeltaTable(url, storage_options=storage_options())
    columns = [field.name for field in table.schema().fields]
    data = table.to_pyarrow_table(columns=keys)
    return table.version(), columns, data.num_rows, checksum([data[key].to_pylist() for key in keys])


def with_polars(url, keys):
    data = polars.scan_delta(url, storage_options=storage_options()).select(keys).collect()
    return data.height, checksum([data[key].to_list() for key in keys])


def main(lake, names):
    lake = lake.rstrip("/").removeprefix("file://")
    found = {}
    for name in names or KEYS:
        url, keys = f"{lake}/{name}", KEYS[name]
        version, columns, rows, keysum = with_deltalake(url, keys)
        polars_rows, polars_keysum = with_polars(url, keys)
        if (rows, keysum) != (polars_rows, polars_keysum):
            sys.exit(f"{name}: deltalake reads {rows} rows ({keysum}), Polars {polars_rows} ({polars_keysum})")
        found[name] = {"rows": rows, "version": version, "keys": keysum, "columns": columns}
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
