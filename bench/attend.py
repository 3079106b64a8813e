"""The ways to compute attention, side by side at the shapes of a decode step and of a prefill.

    python bench/attend.py [--repeats 7]

Best time of several repeats on one thread, and the largest difference from the model's own. These
are times of a component: they say nothing about a service (P7.4).
"""

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from dsv41.model.attend import ATTEND
from dsv41.model.attention import native_attend

HEADS, WIDTH = 4, 64
SHAPES = {"1 x 6": (1, 6, 48), "4 x 6": (4, 6, 48), "16 x 6": (16, 6, 48), "prefill": (1, 256, 300)}


def case(requests, queries, rows):
    torch.manual_seed(0)
    visible = torch.rand(requests, queries, rows) > 0.3
    query = torch.randn(requests, queries, HEADS, WIDTH)
    return query, torch.randn(requests, rows, WIDTH), visible, torch.randn(HEADS)


def best_us(function, values, repeats):
    calls = 20 if values[0].shape[1] > 6 else 200
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(calls):
            function(*values)
        times.append((time.perf_counter() - begin) / calls)
    return min(times) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(f"{'shape':<10}{'path':<12}{'us':>9}{'difference':>13}")
    with torch.inference_mode():
        for shape, sizes in SHAPES.items():
            values = case(*sizes)
            meant = native_attend(*values)
            for name, function in ATTEND.items():
                chosen = function or native_attend
                worst = (chosen(*values) - meant).abs().max().item()
                print(
                    f"{shape:<10}{name:<12}{best_us(chosen, values, repeats):>9.1f}{worst:>13.1e}"
                )


if __name__ == "__main__":
    main()
