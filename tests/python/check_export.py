"""Reads an export and finds every trained token and its logprob in the lake's calls, by the segments of the rows.

    check_export.py EXPORT_DIR CALLS

EXPORT_DIR is what `rollbook export --format parquet|arrow` wrote. CALLS holds the calls of the lake with whole prompts:
a .parquet file from `rollbook sql --format parquet`, or .jsonl in the exchange format. Prints one JSON object of counts,
or ends with status 1 and the first thing that does not agree. Checked are:

- every file is the one the manifest names, by sha256;
- the per-token columns of a row are equally long, and its segments tile it;
- a segment's tokens are the call's prompt or output tokens at its source_start;
- a token is trained only inside a trained output segment, with the engine's logprob, an advantage and a weight, and
  what stands before it in its sequence is the prompt that its call ran and the output so far;
- no output token is trained twice in an epoch;
- position_ids restart at every sequence, and weights stand on trained tokens alone;
- the loss weights of every optimizer step sum to 1.
"""

import hashlib
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet

CALL_COLUMNS = ["rollout_id", "call_id", "prompt_token_ids", "output_token_ids", "output_logprobs"]
PER_TOKEN = ["position_ids", "action_mask", "logprobs", "advantages", "loss_weights"]


class Mismatch(Exception):
    """The first thing that does not agree."""


def need(condition, *what):
    if not condition:
        raise Mismatch(" ".join(str(word) for word in what))


def read_calls(path):
    """{(rollout_id, call_id): (prompt, output, logprobs)} with numpy arrays; a null logprob is NaN."""
    calls = {}
    if path.suffix == ".jsonl":
        with open(path) as lines:
            rows = (json.loads(line) for line in lines)
            for row in rows:
                lists = (row["prompt_token_ids"], row["output_token_ids"])
                tokens = [numpy.array(ids or [], numpy.int32) for ids in lists]
                logprobs = numpy.array([numpy.nan if x is None else x for x in row["output_logprobs"] or []])
                calls[row["rollout_id"], row["call_id"]] = (*tokens, logprobs.astype(numpy.float32))
        return calls
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(256, columns=CALL_COLUMNS):
        for i in range(batch.num_rows):
            key = batch["rollout_id"][i].as_py(), batch["call_id"][i].as_py()
            calls[key] = tuple(array(batch[name], i) for name in CALL_COLUMNS[2:])
    return calls


def array(column, row):
    """One list of a list column as a numpy array: floats with NaN for null, masks with False for null."""
    values = column[row].values
    if values is None:
        return numpy.empty(0)
    if pyarrow.types.is_boolean(values.type):
        return values.fill_null(False).to_numpy(zero_copy_only=False)
    return values.to_numpy(zero_copy_only=False)


def read_rows(folder):
    """The rows of all files, in the order of the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    need(manifest.get("files"), "the manifest names no files")
    for entry in manifest["files"]:
        path = folder / entry.get("path", entry.get("name", ""))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        need(entry["sha256"].removeprefix("sha256:") == digest, path.name, "is not the file of the manifest:", digest)
        if path.suffix == ".parquet":
            batches = pyarrow.parquet.ParquetFile(path).iter_batches(64)
        elif path.suffix == ".arrow":
            file = pyarrow.ipc.open_file(path)
            batches = map(file.get_batch, range(file.num_record_batches))
        else:
            continue
        for batch in batches:
            for i in range(batch.num_rows):
                yield f"{path.name} row {i}", batch, i


class Checker:
    def __init__(self, calls):
        self.calls = calls
        self.counts = dict(rows=0, sequences=0, segments=0, tokens=0, trained=0)
        self.rollouts = set()
        self.seen = defaultdict(set)
        self.weights = defaultdict(list)

    def check_row(self, where, batch, i):
        tokens = array(batch["token_ids"], i)
        columns = {name: array(batch[name], i) for name in PER_TOKEN}
        for name, values in columns.items():
            need(len(values) == len(tokens), where, name, "has", len(values), "items for", len(tokens), "tokens")
        segments = sorted(batch["segments"][i].as_py(), key=lambda segment: segment["start"])
        trained = numpy.zeros(len(tokens), bool)
        end, sequences = 0, defaultdict(list)
        for segment in segments:
            need(segment["start"] == end, where, "segments do not tile: one starts at", segment["start"], "not", end)
            end = segment["start"] + segment["length"]
            self.check_segment(where, batch, i, segment, tokens, columns, trained, sequences)
        need(end == len(tokens), where, "segments end at", end, "of", len(tokens))
        need((trained == columns["action_mask"]).all(), where, "action_mask differs from the trained segments")
        weights = numpy.nan_to_num(columns["loss_weights"])
        need((weights[~trained] == 0).all(), where, "a token that does not train has a weight")
        need((weights[trained] > 0).all(), where, "a trained token has no weight")
        need(numpy.isfinite(columns["advantages"][trained]).all(), where, "a trained token has no advantage")
        for spans in sequences.values():
            positions = numpy.concatenate([columns["position_ids"][start:stop] for start, stop in spans])
            need((positions == numpy.arange(len(positions))).all(), where, "position_ids do not restart:", positions[:9])
        step = batch["optimizer_step"][i].as_py()
        self.weights[batch["step"][i].as_py() if step is None else step].append(weights[trained])
        self.counts["rows"] += 1
        self.counts["sequences"] += len(sequences)
        self.counts["segments"] += len(segments)
        self.counts["tokens"] += len(tokens)
        self.counts["trained"] += int(trained.sum())

    def check_segment(self, where, batch, i, segment, tokens, columns, trained, sequences):
        start, length, source = segment["start"], segment["length"], segment["source"]
        span = slice(start, start + length)
        spans = sequences[segment["sequence_index"]]
        before = numpy.concatenate([tokens[a:b] for a, b in spans]) if spans else tokens[:0]
        spans.append((start, start + length))
        if source in ("boundary", "pad"):
            need(not segment["trained"], where, "a", source, "segment is trained")
            return
        key = segment["rollout_id"], segment["call_id"]
        need(key in self.calls, where, "segment names no call of the lake:", key)
        prompt, output, logprobs = self.calls[key]
        offset = segment["source_start"]
        original = (output if source == "output" else prompt)[offset : offset + length]
        need(len(original) == length, where, key, source, "is shorter than", offset + length)
        differs = numpy.flatnonzero(original != tokens[span])
        need(not len(differs), where, "token", start + (differs[0] if len(differs) else 0), "is not that of", key, source)
        if not segment["trained"]:
            return
        need(source == "output", where, "a", source, "segment is trained")
        context = numpy.concatenate([prompt, output[:offset]])
        need(len(before) == len(context) and (before == context).all(), where, key, "is trained after another prompt")
        equal = columns["logprobs"][span].astype(numpy.float32) == logprobs[offset : offset + length]
        need(equal.all(), where, key, "logprob", offset + int(numpy.argmin(equal)), "is not the lake's")
        trained[span] = True
        self.rollouts.add((batch["run_id"][i].as_py(), segment["rollout_id"]))
        once = self.seen[batch["epoch"][i].as_py(), key]
        for position in range(offset, offset + length):
            need(position not in once, where, key, "output token", position, "trains twice")
            once.add(position)

    def finish(self):
        for step, parts in self.weights.items():
            values = numpy.concatenate(parts)
            total = float(values.sum(dtype=numpy.float64))
            need(not len(values) or abs(total - 1) <= 1e-9 * len(values), "optimizer step", step, "weights sum to", total)
        return {**self.counts, "rollouts": len(self.rollouts), "optimizer_steps": len(self.weights)}


def main(folder, calls):
    checker = Checker(read_calls(Path(calls)))
    for where, batch, i in read_rows(Path(folder)):
        checker.check_row(where, batch, i)
    print(json.dumps(checker.finish()))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except Mismatch as mismatch:
        sys.exit(f"check_export: {mismatch}")
