"""The peers' side of the yardstick: each task in the best form of numpy, Polars, DuckDB and pyarrow.

    peers.py build DATA [SIZE_1M]     the peers' own files from the generated run, and the million rollouts
    peers.py TASK PEER DATA           runs one task once and prints one JSON line: answer, seconds, cpu, peak, bytes

Times leave out the start of Python and the imports. Ids are small integers, which suits every peer.
"""

import json
import os
import sys
import time
from pathlib import Path

THREADS = int(os.environ.get("YARDSTICK_THREADS", "2"))
CAPACITY = 32_768
PAGE = 8 << 20


def measured(work):
    """Runs `work` and prints what it cost; what it returns is the answer."""
    wall, cpu = time.perf_counter(), time.process_time()
    answer = work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    # Not getrusage's: that begins with what the parent held.
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) << 10
    print(json.dumps({"seconds": wall, "cpu": cpu, "peak": peak, **answer}), flush=True)


def duckdb_connection(folder):
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads={THREADS}; SET memory_limit='8GB'; SET temp_directory='{folder}/duckdb'")
    connection.execute("SET preserve_insertion_order=false")
    return connection


def columns(path, names):
    import pyarrow.parquet as pq

    return pq.read_table(path, columns=names, use_threads=THREADS > 1)


def lists(table, name):
    """Values and offsets of a list column. Offsets of chunks are joined as int64."""
    import numpy as np

    values, offsets, at = [], [np.zeros(1, np.int64)], 0
    for chunk in table[name].chunks:
        ends = chunk.offsets.to_numpy().astype(np.int64)
        values.append(chunk.values.to_numpy(zero_copy_only=False)[ends[0] : ends[-1]])
        offsets.append(ends[1:] - ends[0] + at)
        at += ends[-1] - ends[0]
    return np.concatenate(values), np.concatenate(offsets)


# ---------------------------------------------------------------------------------------------------- files


def build(data, count):
    """`full.parquet` is the tuned form: sorted by rollout, zstd 9, 8 MiB pages, no dictionary."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    data.joinpath("peers").mkdir(exist_ok=True)
    rollouts = pq.read_table(data / "run/rollouts.parquet", columns=["rollout_id", "group_id"])
    scores = pq.read_table(data / "run/scores.parquet", columns=["rollout_id", "verifier", "value"])
    scores = scores.filter(pc.equal(scores["verifier"], "tests"))
    place = {name: index for index, name in enumerate(rollouts["rollout_id"].to_pylist())}
    groups = {}
    group_of = [groups.setdefault(name, len(groups)) for name in rollouts["group_id"].to_pylist()]
    rewards = np.full(len(place), np.nan)
    for name, value in zip(scores["rollout_id"].to_pylist(), scores["value"].to_pylist()):
        rewards[place[name]] = np.nan if value is None else value
    pq.write_table(
        pa.table(
            {
                "rollout": pa.array(np.arange(len(place), dtype=np.int32)),
                "grp": pa.array(np.array(group_of, np.int32)),
                "reward": pa.array(rewards, from_pandas=True),
            }
        ),
        data / "peers/rollouts.parquet",
        compression="zstd",
    )
    tuned(data / "peers/full.parquet", [data / "run/calls.parquet"], place)
    # The same in the order in which calls arrived.
    tuned(data / "peers/live.parquet", sorted(data.glob("live/*/calls.parquet")), None)
    million(data, count)


def tuned(out, sources, place):
    """The tuned form of some files; rollouts are numbered by `place`, or as they come."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    place, writer = {} if place is None else place, None
    names = ["rollout_id", "call_index", "prompt_token_ids", "output_token_ids", "output_logprobs"]
    for source in sources:
        for batch in pq.ParquetFile(source).iter_batches(batch_size=2048, columns=names):
            numbers = [place.setdefault(name, len(place)) for name in batch["rollout_id"].to_pylist()]
            table = pa.table(
                {
                    "rollout": pa.array(np.array(numbers, np.int32)),
                    "turn": batch["call_index"],
                    "prompt": batch["prompt_token_ids"],
                    "sampled": batch["output_token_ids"],
                    "lp": batch["output_logprobs"],
                }
            )
            if writer is None:
                writer = pq.ParquetWriter(
                    out, table.schema, compression="zstd", compression_level=9, use_dictionary=False, data_page_size=PAGE
                )
            writer.write_table(table, row_group_size=2048)
    writer.close()


def million(data, count):
    """Rollouts in groups of 8, in an order far from sorted, with lengths as agents' are: for groups and for packing."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(0)
    group = np.repeat(np.arange(count // 8, dtype=np.int32), 8)[chance.permutation(count // 8 * 8)]
    reward = chance.random(len(group))
    length = np.clip(chance.lognormal(np.log(5000), 1.0, len(group)), 64, CAPACITY).astype(np.int64)
    number = np.arange(len(group), dtype=np.int32)
    pq.write_table(
        pa.table({"rollout": number, "grp": group, "reward": reward, "length": length}),
        data / "peers/million.parquet",
        compression="zstd",
    )
    folder = data / "million"
    folder.mkdir(exist_ok=True)
    ids = pa.array([f"r{n}" for n in number])
    groups = pa.array([f"g{g}" for g in group])
    run = pa.array(["million"] * len(number))
    pq.write_table(pa.table({"run_id": ["million"]}), folder / "runs.parquet")
    pq.write_table(
        pa.table({"run_id": run, "rollout_id": ids, "group_id": groups, "prompt_token_count": length}),
        folder / "rollouts.parquet",
        compression="zstd",
    )
    pq.write_table(
        pa.table(
            {"run_id": run, "name": ["given"] * len(number), "rollout_id": ids, "group_id": groups, "value": reward}
        ),
        folder / "rewards.parquet",
        compression="zstd",
    )


# ---------------------------------------------------------------------------------------------------- tasks


def scan_pyarrow(data):
    import pyarrow.parquet as pq

    def work():
        tokens = 0
        for batch in pq.ParquetFile(data / "peers/full.parquet").iter_batches(
            batch_size=512, columns=["prompt", "sampled", "lp"], use_threads=THREADS > 1
        ):
            tokens += sum(len(batch[name].values) for name in ("prompt", "sampled", "lp"))
        return {"answer": tokens, "bytes": tokens * 4}

    measured(work)


def stored_bytes(path):
    import pyarrow.parquet as pq

    def work():
        sizes = {}
        meta = pq.ParquetFile(path).metadata
        for group in range(meta.num_row_groups):
            for column in range(meta.num_columns):
                chunk = meta.row_group(group).column(column)
                name = chunk.path_in_schema.split(".")[0]
                sizes[name] = sizes.get(name, 0) + chunk.total_compressed_size
        return {"bytes": sizes["prompt"] + sizes["sampled"] + sizes["lp"], "parts": sizes}

    measured(work)


def bytes_pyarrow(data):
    stored_bytes(data / "peers/full.parquet")


def live_pyarrow(data):
    stored_bytes(data / "peers/live.parquet")


def import_duckdb(data):
    connection = duckdb_connection(data)
    out = data / "peers/imported.parquet"

    def work():
        connection.execute(
            f"COPY (SELECT rollout_id, call_id, call_index, prompt_token_ids, output_token_ids, output_logprobs "
            f"FROM read_json('{data}/jsonl/calls.jsonl', maximum_object_size=268435456, columns={{"
            f"rollout_id:'VARCHAR',call_id:'VARCHAR',call_index:'INTEGER',prompt_token_ids:'INTEGER[]',"
            f"output_token_ids:'INTEGER[]',output_logprobs:'FLOAT[]'}})) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
        )
        return {"answer": connection.execute(f"SELECT count(*) FROM '{out}'").fetchone()[0], "bytes": out.stat().st_size}

    measured(work)


def extension_numpy(data):
    import pyarrow.parquet as pq

    def work():
        file = pq.ParquetFile(data / "peers/full.parquet")
        pairs = extends = 0
        last = None
        for batch in file.iter_batches(batch_size=512, columns=["rollout", "prompt", "sampled"]):
            prompts, sampled = batch["prompt"], batch["sampled"]
            values, offsets = prompts.values.to_numpy(), prompts.offsets.to_numpy()
            outputs, ends = sampled.values.to_numpy(), sampled.offsets.to_numpy()
            rollout = batch["rollout"].to_numpy()
            for row in range(len(rollout)):
                prompt = values[offsets[row] : offsets[row + 1]]
                output = outputs[ends[row] : ends[row + 1]]
                if last is not None and last[0] == rollout[row]:
                    before, answer = last[1], last[2]
                    size = len(before)
                    pairs += 1
                    extends += (
                        len(prompt) >= size + len(answer)
                        and bool((prompt[:size] == before).all())
                        and bool((prompt[size : size + len(answer)] == answer).all())
                    )
                last = (rollout[row], prompt, output)
        return {"answer": [pairs, int(extends)]}

    measured(work)


def extension_duckdb(data):
    connection = duckdb_connection(data)

    def work():
        pairs, extends = connection.execute(
            "SELECT count(prev), count(*) FILTER (prompt[1:len(prev)] = prev) FROM (SELECT prompt, "
            "lag(list_concat(prompt, sampled)) OVER (PARTITION BY rollout ORDER BY turn) AS prev "
            f"FROM '{data}/peers/full.parquet')"
        ).fetchone()
        return {"answer": [pairs, extends]}

    measured(work)


def rebuild_numpy(data):
    """Reads stored prompts: what a reader of the full form does to have every prompt."""
    import pyarrow.parquet as pq

    def work():
        size = 0
        for batch in pq.ParquetFile(data / "peers/full.parquet").iter_batches(batch_size=512, columns=["prompt"]):
            size += batch["prompt"].values.nbytes
        return {"answer": size // 4, "bytes": size}

    measured(work)


def credit_numpy(data):
    import numpy as np

    def work():
        table = columns(data / "peers/million.parquet", ["grp", "reward"])
        group, reward = table["grp"].to_numpy(), table["reward"].to_numpy()
        count = np.bincount(group)
        off = reward - (np.bincount(group, reward) / count)[group]
        std = np.sqrt(np.bincount(group, off * off) / (count - 1))
        return {"answer": float(np.abs(off / (std[group] + 1e-6)).sum())}

    measured(work)


def credit_polars(data):
    import polars as pl

    reward = pl.col("reward")

    def work():
        scan = pl.scan_parquet(data / "peers/million.parquet")
        credit = (reward - reward.mean().over("grp")) / (reward.std().over("grp") + 1e-6)
        return {"answer": scan.select(credit.abs().sum()).collect().item()}

    measured(work)


def credit_duckdb(data):
    connection = duckdb_connection(data)
    million = data / "peers/million.parquet"

    def work():
        answer = connection.execute(
            f"WITH s AS (SELECT grp, avg(reward) m, stddev_samp(reward) sd FROM '{million}' GROUP BY grp) "
            f"SELECT sum(abs((reward - m) / (sd + 1e-6))) FROM '{million}' JOIN s USING (grp)"
        ).fetchone()[0]
        return {"answer": answer}

    measured(work)


def variants_duckdb(data):
    connection = duckdb_connection(data)
    million = data / "peers/million.parquet"
    sums = ", ".join(
        f"sum(abs((reward - m) / ({std} + {eps})))"
        for std in ("s0", "s1")
        for eps in ("0.0", "1e-9", "1e-6", "1e-4", "1e-2")
    )

    def work():
        answer = connection.execute(
            "WITH s AS (SELECT grp, avg(reward) m, stddev_pop(reward) s0, stddev_samp(reward) s1 "
            f"FROM '{million}' GROUP BY grp) SELECT {sums} FROM '{million}' JOIN s USING (grp)"
        ).fetchone()
        return {"answer": list(answer)}

    measured(work)


def credits_of(data):
    import numpy as np

    table = columns(data / "peers/rollouts.parquet", None)
    group, reward = table["grp"].to_numpy(), table["reward"].to_numpy()
    known = ~np.isnan(reward)
    value = np.where(known, reward, 0.0)
    count = np.bincount(group, known)
    mean = np.bincount(group, value) / np.maximum(count, 1)
    off = np.where(known, reward - mean[group], 0.0)
    std = np.sqrt(np.bincount(group, off * off) / np.maximum(count - 1, 1))
    credit = np.where(known, off / (std[group] + 1e-6), np.nan)
    credit[known & (std[group] == 0)] = 0.0
    return credit


def broadcast_numpy(data):
    import numpy as np

    def work():
        credit = credits_of(data).astype(np.float32)
        table = columns(data / "peers/full.parquet", ["rollout", "sampled"])
        _, offsets = lists(table, "sampled")
        values = np.repeat(credit[table["rollout"].to_numpy()], np.diff(offsets))
        return {"answer": float(np.nansum(np.abs(values), dtype=np.float64)), "bytes": values.nbytes}

    measured(work)


def broadcast_duckdb(data):
    connection = duckdb_connection(data)
    rollouts, calls = data / "peers/rollouts.parquet", data / "peers/full.parquet"

    def work():
        connection.execute(
            "CREATE TABLE o AS WITH a AS (SELECT rollout, ((reward - avg(reward) OVER (PARTITION BY grp)) / "
            f"(stddev_samp(reward) OVER (PARTITION BY grp) + 1e-6))::FLOAT adv FROM '{rollouts}') "
            f"SELECT c.rollout, c.turn, list_resize([]::FLOAT[], len(c.sampled), a.adv) adv FROM '{calls}' c "
            "JOIN a USING (rollout)"
        )
        return {"answer": connection.execute("SELECT sum(abs(list_sum(adv))) FROM o").fetchone()[0]}

    measured(work)


def audit_numpy(data):
    import numpy as np

    def work():
        table = columns(data / "peers/full.parquet", ["turn", "sampled", "lp"])
        _, offsets = lists(table, "sampled")
        values, ends = lists(table, "lp")
        bad = int((~np.isfinite(values) | (values > 1e-6)).sum())
        return {"answer": [int((np.diff(offsets) != np.diff(ends)).sum()), bad]}

    measured(work)


def audit_duckdb(data):
    connection = duckdb_connection(data)
    calls = data / "peers/full.parquet"

    def work():
        unequal = connection.execute(f"SELECT count(*) FILTER (len(sampled) <> len(lp)) FROM '{calls}'").fetchone()[0]
        bad = connection.execute(
            f"SELECT count(*) FILTER (l IS NULL OR isnan(l) OR isinf(l) OR l > 1e-6) "
            f"FROM (SELECT unnest(lp) l FROM '{calls}')"
        ).fetchone()[0]
        return {"answer": [unequal, bad]}

    measured(work)


def duplicates_duckdb(data):
    connection = duckdb_connection(data)

    def work():
        answer = connection.execute(
            "SELECT coalesce(sum(n - 1), 0)::BIGINT FROM (SELECT h, count(*) n FROM (SELECT rollout, "
            f"hash(list(hash(sampled) ORDER BY turn)) h FROM '{data}/peers/full.parquet' GROUP BY rollout) "
            "GROUP BY h HAVING count(*) > 1)"
        ).fetchone()[0]
        return {"answer": answer}

    measured(work)


def duplicates_polars(data):
    import polars as pl

    def work():
        hashes = pl.scan_parquet(data / "peers/full.parquet").select("rollout", "turn", h=pl.col("sampled").hash()).collect()
        each = hashes.sort("rollout", "turn").group_by("rollout", maintain_order=True).agg("h")
        counts = each.with_columns(k=pl.col("h").hash()).group_by("k").len().filter(pl.col("len") > 1)
        return {"answer": int((counts["len"] - 1).sum())}

    measured(work)


def pack_numba(data):
    """Best fit decreasing with a stack a free space and a bitmap over them: the fastest we know outside."""
    import numba
    import numpy as np

    @numba.njit(cache=False)
    def best_fit(lengths, capacity):
        head = np.full(capacity + 1, -1, np.int64)
        following = np.full(len(lengths), -1, np.int64)
        used = 0
        words = np.zeros((capacity >> 6) + 1, np.uint64)
        one = np.uint64(1)
        for length in lengths:
            word = length >> 6
            bits = words[word] & (np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(length & 63))
            while bits == 0 and word + 1 < len(words):
                word += 1
                bits = words[word]
            if bits != 0:
                bit = 0
                while (bits >> np.uint64(bit)) & one == 0:
                    bit += 1
                space = (word << 6) + bit
                bin_ = head[space]
                head[space] = following[bin_]
                if head[space] < 0:
                    words[space >> 6] &= ~(one << np.uint64(space & 63))
            else:
                bin_, space = used, capacity
                used += 1
            space -= length
            if space > 0:
                following[bin_] = head[space]
                head[space] = bin_
                words[space >> 6] |= one << np.uint64(space & 63)
        return used

    best_fit(np.array([3, 2, 1]), 4)

    def work():
        lengths = columns(data / "peers/million.parquet", ["length"])["length"].to_numpy()
        return {"answer": int(best_fit(np.sort(lengths)[::-1], CAPACITY))}

    measured(work)


def pack_heap(data):
    """A sorted list of free spaces, in Python, as trainers' packers have it."""
    from bisect import bisect_left, insort

    def work():
        lengths = columns(data / "peers/million.parquet", ["length"])["length"].to_numpy()
        spaces, bins = [], 0
        for length in sorted(lengths.tolist(), reverse=True):
            at = bisect_left(spaces, length)
            if at < len(spaces):
                space = spaces.pop(at) - length
            else:
                bins, space = bins + 1, CAPACITY - length
            if space > 0:
                insort(spaces, space)
        return {"answer": bins}

    measured(work)


def lookup_pyarrow(data):
    import pyarrow.parquet as pq

    wanted = pq.ParquetFile(data / "peers/rollouts.parquet").metadata.num_rows * 7 // 9

    def work():
        table = pq.read_table(data / "peers/full.parquet", filters=[("rollout", "=", wanted)])
        return {"answer": [table.num_rows, sum(len(chunk.flatten()) for chunk in table["prompt"].chunks)]}

    measured(work)


def export_numpy(data):
    """A row a rollout, of one chain: the last call's prompt and output. Kinder than bins, and than several branches."""
    import numpy as np
    import pyarrow.parquet as pq

    out = data / "peers/exported.bin"

    def work():
        credit = credits_of(data).astype(np.float32)
        tokens = 0
        with open(out, "wb") as file:
            held, rollout, output, logprobs = None, None, None, None

            def flush():
                nonlocal tokens
                if held is None:
                    return
                size = len(held)
                mask = np.zeros(size, np.uint8)
                mask[size - len(output) :] = 1
                shown = np.zeros(size, np.float32)
                shown[size - len(output) :] = logprobs
                for array in (held, np.arange(size, dtype=np.int32), mask, shown, np.full(size, credit[rollout])):
                    file.write(array.astype(array.dtype, copy=False))
                tokens += size

            for batch in pq.ParquetFile(data / "peers/full.parquet").iter_batches(batch_size=512):
                rows = batch["rollout"].to_numpy()
                prompts, sampled, values = batch["prompt"], batch["sampled"], batch["lp"]
                p, po = prompts.values.to_numpy(), prompts.offsets.to_numpy()
                s, so = sampled.values.to_numpy(), sampled.offsets.to_numpy()
                v = values.values.to_numpy(zero_copy_only=False)
                for row in range(len(rows)):
                    if rollout is not None and rows[row] != rollout:
                        flush()
                    rollout = rows[row]
                    output, logprobs = s[so[row] : so[row + 1]], v[so[row] : so[row + 1]]
                    held = np.concatenate([p[po[row] : po[row + 1]], output])
            flush()
        return {"answer": tokens, "bytes": tokens * 17}

    measured(work)


def main():
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1_000_000)
        return
    task, peer, data = sys.argv[1:4]
    globals()[f"{task}_{peer}"](Path(data))


if __name__ == "__main__":
    main()
