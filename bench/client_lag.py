"""How late are the stamps of the measuring client, side by side with httpx?

    python bench/client_lag.py [--streams 16] [--frames 200] [--interval-ms 25] [--repeats 2]

A clocked service writes a frame to every stream each interval, with its own clock in it. Printed:
lag p50, p99 and maximum, the worst error of a stream's TPOT that was seen, and the largest that the
lags allow, as a share of the interval. Compare rows of one run; the machine is in all of them.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from fractions import Fraction
from pathlib import Path
from time import perf_counter_ns

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import httpx  # noqa: E402  (the repository is not installed where a bench may run)

from acceptance.client.lag import clock_server, clock_spec, measure_lag, summarise  # noqa: E402

OURS = {"this client, SCHED_FIFO": 10, "this client, default priority": 0}
HTTPX = {"httpx async, aiter_raw": "async", "httpx threads, iter_raw": "threads"}


def bodies(port, streams, frames):
    return [request.body for request in clock_spec(port, streams, frames, 0).requests]


async def httpx_async(url, asked):
    """(time, bytes) of each read of each stream, by one AsyncClient."""
    limits = httpx.Limits(max_connections=len(asked))
    async with httpx.AsyncClient(timeout=600, limits=limits) as client:

        async def one(body):
            async with client.stream("POST", url, content=body) as response:
                return [(perf_counter_ns(), data) async for data in response.aiter_raw()]

        return await asyncio.gather(*map(one, asked))


def httpx_threads(url, asked):
    """The same by one Client and a thread per stream."""
    results = [[] for _ in asked]
    with httpx.Client(timeout=600, limits=httpx.Limits(max_connections=len(asked))) as client:

        def one(slot):
            with client.stream("POST", url, content=asked[slot]) as response:
                results[slot] = [(perf_counter_ns(), data) for data in response.iter_raw()]

        threads = [threading.Thread(target=one, args=(slot,)) for slot in range(len(asked))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return results


def child(kind, port, streams, frames):
    """Run one httpx client in this process and print its lag as JSON."""
    url, asked = f"http://127.0.0.1:{port}/v1/completions", bodies(port, streams, frames)
    is_async = kind == "async"
    reads = asyncio.run(httpx_async(url, asked)) if is_async else httpx_threads(url, asked)
    lag = summarise(reads)
    figures = [lag.lag_ns_p50, lag.lag_ns_p99, lag.lag_ns_max]
    print(json.dumps([*figures, str(lag.tpot_error_max), str(lag.tpot_error_bound_ns)]))


def measure_ours(priority, args):
    with tempfile.TemporaryDirectory() as directory:
        lag, _ = measure_lag(
            Path(directory),
            streams=args.streams,
            frames=args.frames,
            interval_ns=args.interval_ns,
            priority=priority,
        )
    figures = [lag.lag_ns_p50, lag.lag_ns_p99, lag.lag_ns_max]
    return [*figures, lag.tpot_error_max, lag.tpot_error_bound_ns]


def measure_httpx(kind, args):
    with clock_server(args.streams, args.frames, args.interval_ns) as port:
        command = [sys.executable, __file__, "--child", kind, "--port", str(port)]
        command += ["--streams", str(args.streams), "--frames", str(args.frames)]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    p50, p99, most, error, bound = json.loads(said)
    return [p50, p99, most, Fraction(error), Fraction(bound)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--interval-ms", type=float, default=25)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.port, args.streams, args.frames)
        return
    args.interval_ns = round(args.interval_ms * 1e6)
    rows = {name: [] for name in [*OURS, *HTTPX]}
    for repeat in range(args.repeats):
        # The order is turned round every time, so that a drift of the machine meets all alike.
        for name in list(rows)[:: 1 if repeat % 2 == 0 else -1]:
            if name in OURS:
                rows[name].append(measure_ours(OURS[name], args))
            else:
                rows[name].append(measure_httpx(HTTPX[name], args))
    print(
        f"{args.streams} streams, {args.frames} frames every {args.interval_ms:g} ms, "
        f"{args.repeats} repeats, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        "p50 and p99: median of the repeats, the rest: the worst"
    )
    print(f"{'client':<32}{'p50 us':>8}{'p99 us':>8}{'max us':>8}{'TPOT error':>12}{'bound':>10}")
    for name, found in rows.items():
        p50, p99 = (sorted(one[index] for one in found)[len(found) // 2] / 1e3 for index in (0, 1))
        most, error, bound = (max(one[index] for one in found) for index in (2, 3, 4))
        lags = f"{p50:>8.0f}{p99:>8.0f}{most / 1e3:>8.0f}"
        shares = f"{float(error) * 100:>10.4f} %{float(bound / args.interval_ns) * 100:>8.4f} %"
        print(f"{name:<32}{lags}{shares}")


if __name__ == "__main__":
    main()
