"""Reads what `rollbook sql --format` printed with readers that know nothing of it.

    read_rows.py csv|ndjson|arrow|parquet FILE

Prints {"columns": [...], "rows": [[...], ...]}; CSV gives text alone.
"""

import csv
import json
import sys

import pyarrow.ipc
import pyarrow.parquet


def read(form, path):
    if form == "csv":
        with open(path, newline="") as file:
            columns, *rows = csv.reader(file)
        return columns, rows
    if form == "ndjson":
        with open(path) as file:
            rows = [json.loads(line) for line in file]
        return list(rows[0]), [list(row.values()) for row in rows]
    if form == "arrow":
        with pyarrow.ipc.open_stream(path) as stream:
            table = stream.read_all()
    else:
        table = pyarrow.parquet.read_table(path)
    return table.column_names, [list(row.values()) for row in table.to_pylist()]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found_columns, found_rows = read(*sys.argv[1:])
    print(json.dumps({"columns": found_columns, "rows": found_rows}))
