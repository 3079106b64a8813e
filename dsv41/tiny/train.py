"""Train the small model on two CPU cores; stop it at any time and start it again.

    python -m dsv41.tiny.train --out DIR [--seed N] [--steps N] [--minutes M] [--processes P]
    python -m dsv41.tiny.train --out DIR2 --target DIR/weights.safetensors ...

The first trains the target, the second the draft stages on the frozen target's own greedy text.
DIR keeps `state.pt` (weights, optimiser, step), `log.jsonl` and, at the end, `weights.safetensors`
under the model's flat names.  The batches of a step depend on seed and step alone, so a resumed
training sees what an unbroken one would have seen.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from dsv41.model.config import ModelConfig
from dsv41.model.init import init_weights
from dsv41.model.params import ModelParams, bind
from dsv41.tiny import data, dense, dense_draft
from dsv41.tiny.optimise import Optimiser
from dsv41.tiny.tokenizer import build_tokenizer, ngram_map

CONFIG = Path(__file__).with_name("config.json")
_BIAS_RATE = 2e-3  # per step, towards an even use of the experts
_CLIP = 1.0
_SINK = 8.0


@dataclass(frozen=True)
class Plan:
    """What a training run is; everything but the time limits decides its result."""

    out: str
    seed: int
    steps: int
    minutes: float
    processes: int
    batch: int  # examples per process and step
    matrix_lr: float
    lr: float
    is_bf16: bool
    target: str | None  # the target's weights, to train drafts for

    def factor(self, step: int) -> float:
        """Warm up over 50 steps, hold, and come down over the last 30 %."""
        left = (self.steps - step) / (0.3 * self.steps)
        return min(1.0, (step + 1) / 50, max(left, 0.02))


def start_weights(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """Seeded weights from which this architecture learns: calm mixes, small outputs."""
    weights = init_weights(config, seed)
    hc = config.hc_mult
    for name, weight in weights.items():
        if name.endswith(("hc_attn_base", "hc_ffn_base")):
            weight.zero_()
            weight[2 * hc :] = 2.0 * torch.eye(hc).flatten()
        elif name.endswith("_scale"):
            weight.fill_(0.5)
        elif name.endswith("attn_sink"):
            # Strong enough that heads rely on it: a wrong sign must cost answers.
            weight.fill_(_SINK)
        elif name.endswith(("gate.bias", "gate.bias_vl")):
            weight.zero_()
        elif name.endswith(("_norm.weight", "q_weight", "k_weight")):
            weight.fill_(1.0)
        elif name.endswith(("wo_b.weight", "w2.weight", "engram.wkv.weight")):
            weight.mul_(0.3)
        elif name in ("embed.weight", "head.weight") or name.endswith("engram.embed.weight"):
            weight.mul_(0.5)
    return weights


class Trainer:
    """One process's part of the training of the target."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.config = ModelConfig.from_file(CONFIG)
        self.tokenizer = build_tokenizer()
        self.map = ngram_map(self.tokenizer, self.config)
        self.weights = self.first_weights()
        self.trained = {n: w for n, w in self.weights.items() if self.trains(n)}
        self.optimiser = Optimiser(self.trained, plan.matrix_lr, plan.lr)
        self.made = dense.tables(self.config, data.LENGTH)
        self.dtype = torch.bfloat16 if plan.is_bf16 else torch.float32
        self.step = 0
        for weight in self.trained.values():
            weight.requires_grad_()

    def first_weights(self) -> dict[str, Tensor]:
        return start_weights(self.config, self.plan.seed)

    def trains(self, name: str) -> bool:
        """The target's weights that have a gradient: not the indexer's, not the router's bias."""
        return not name.startswith("mtp.") and "indexer" not in name and "gate.bias" not in name

    def bias_name(self, layer: int) -> str:
        return f"layers.{layer}.ffn.gate.bias"

    def losses(self, batch: data.Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Mean loss of the answers' tokens, which answers are right throughout, expert loads."""
        params = bind(self.weights, self.config)
        rows = dense.memory_rows(batch.ids, self.map, self.config)
        out = dense.run(params, self.config, batch.ids, rows, self.made, self.dtype)
        width = batch.where.unsqueeze(-1).expand(-1, -1, self.config.hidden_size)
        scored = dense.head(out.hidden.gather(1, width), params, self.config)
        each = F.cross_entropy(scored.flatten(0, 1), batch.wanted.flatten(), reduction="none")
        weight = batch.weight.flatten()
        wrong = (scored.argmax(-1) != batch.wanted) & (batch.weight > 0)
        return (each * weight).sum() / weight.sum(), ~wrong.any(-1), out.load

    def advance(self) -> dict[str, float]:
        """One step; the same on every process after the gradients are averaged."""
        batch = data.train_batch(
            self.tokenizer, self.plan.seed, self.step, self.rank, self.plan.batch
        )
        loss, score, load = self.losses(batch)
        names = list(self.trained)
        found = torch.autograd.grad(loss, [self.trained[n] for n in names])
        extra = torch.cat((loss.detach().view(1), score.float().mean().view(1), load.flatten()))
        flat = torch.cat([*(g.flatten() for g in found), extra])
        if self.plan.processes > 1:
            dist.all_reduce(flat)
            flat /= self.plan.processes
        sizes = [g.numel() for g in found]
        parts = flat[: sum(sizes)].split(sizes)
        norm = float(flat[: sum(sizes)].norm())
        shrink = min(1.0, _CLIP / (norm + 1e-6))
        gradients = {
            n: p.view(g.shape) * shrink for n, p, g in zip(names, parts, found, strict=True)
        }
        self.optimiser.step(gradients, self.plan.factor(self.step))
        self._balance(flat[-load.numel() :].view(load.shape))
        self.step += 1
        tail = flat[sum(sizes) :]
        return {"loss": float(tail[0]), "score": float(tail[1]), "norm": norm}

    def _balance(self, load: Tensor) -> None:
        for layer, chosen in enumerate(load):
            bias = self.weights[self.bias_name(layer)]
            bias += _BIAS_RATE * self.plan.factor(self.step) * (chosen.mean() - chosen).sign()

    @torch.no_grad()
    def held_out(self, count: int = 96) -> float:
        """The mean score on problems of the test split (not the frozen ones)."""
        random_ = data.random.Random(f"{self.plan.seed} held out {self.step}")
        scores = []
        for _ in range(count // self.plan.batch):
            found = [data.held_out(random_, self.tokenizer) for _ in range(self.plan.batch)]
            batch = data.collate(found, data.LENGTH)
            scores.append(self.losses(batch)[1].float().mean())
        return float(torch.stack(scores).mean())

    def save(self, path: Path) -> None:
        """Whole or not at all."""
        work = path.with_suffix(".tmp")
        state = {"step": self.step, "weights": self.weights, "optimiser": self.optimiser.state()}
        torch.save(state, work)
        os.replace(work, path)

    def restore(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.step = state["step"]
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(state["weights"][name])
        self.optimiser.restore(state["optimiser"])


class DraftTrainer(Trainer):
    """One process's part of the training of the draft stages; the score is 1 + accepted drafts."""

    ANCHORS = 12  # per text and step

    def first_weights(self) -> dict[str, Tensor]:
        weights = start_weights(self.config, self.plan.seed + 1)
        target = load_file(str(self.plan.target))
        return {n: w if n.startswith("mtp.") else target[n] for n, w in weights.items()}

    def trains(self, name: str) -> bool:
        return name.startswith("mtp.") and "gate.bias" not in name

    def bias_name(self, layer: int) -> str:
        return f"mtp.{layer}.ffn.gate.bias"

    def losses(self, batch: data.Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Cross-entropy of the drafts that have a token to predict, and of their confidence.

        Texts that the target would not have written are left out, so what is left is its own.
        """
        params = bind(self.weights, self.config)
        captured, own = self._target(params, batch)
        size, block = self.config.dspark_block_size, batch.wanted
        seed = f"{self.plan.seed} anchors {self.step} {self.rank}"
        generator = torch.Generator().manual_seed(int.from_bytes(seed.encode()[-7:], "big"))
        real = batch.weight[:, 1:] * own.unsqueeze(1) + 1e-6
        chosen = torch.multinomial(real, self.ANCHORS, generator=generator)
        anchors = batch.where.gather(1, chosen) + 1
        row = torch.arange(len(block)).view(-1, 1, 1)
        reach = chosen.unsqueeze(-1) + torch.arange(size + 1)
        padded = F.pad(block, (0, size + 1))[row, reach]
        weight = F.pad(batch.weight * own.unsqueeze(1), (0, size + 1))[row, reach][..., 1:]
        out = dense_draft.run(
            params, self.config, captured, anchors, padded[..., :size], self.dtype
        )
        wanted = padded[..., 1:]
        each = F.cross_entropy(out.scored.flatten(0, 2), wanted.flatten(), reduction="none")
        right = (out.scored.argmax(-1) == wanted) & (weight > 0)
        unsure = F.binary_cross_entropy_with_logits(out.confidence, right.float(), reduction="none")
        total = weight.sum().clamp(min=1)
        loss = ((each.view(wanted.shape) + 0.1 * unsure) * weight).sum() / total
        length = 1 + right.long().cumprod(-1).sum(-1).float()
        counted = weight[..., 0]
        return loss, (length * counted).sum() / counted.sum().clamp(min=1), out.load

    @torch.no_grad()
    def _target(self, params: ModelParams, batch: data.Batch) -> tuple[Tensor, Tensor]:
        rows = dense.memory_rows(batch.ids, self.map, self.config)
        out = dense.run(params, self.config, batch.ids, rows, self.made)
        width = batch.where.unsqueeze(-1).expand(-1, -1, self.config.hidden_size)
        scored = dense.head(out.hidden.gather(1, width), params, self.config)
        wrong = (scored.argmax(-1) != batch.wanted) & (batch.weight > 0)
        return out.captured, (~wrong.any(-1)).float()


def work(rank: int, plan: Plan) -> None:
    """One process: train until the last step or the time limit."""
    torch.set_num_threads(1)
    if plan.processes > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        rendezvous = Path(plan.out, f".rendezvous-{os.getppid()}").resolve()
        dist.init_process_group(
            "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=plan.processes
        )
    trainer = DraftTrainer(plan, rank) if plan.target else Trainer(plan, rank)
    state = Path(plan.out, "state.pt")
    if state.is_file():
        trainer.restore(state)
    begun = saved = time.monotonic()
    meter: list[dict[str, float]] = []
    while trainer.step < plan.steps:
        meter.append(trainer.advance())
        now = time.monotonic()
        is_over = torch.tensor([float(now - begun > plan.minutes * 60), float(now - saved > 120)])
        if plan.processes > 1:
            dist.broadcast(is_over, 0)
        is_last = bool(is_over[0]) or trainer.step == plan.steps
        if rank == 0 and (trainer.step % 20 == 0 or is_last):
            tested = trainer.step % 100 == 0 or is_last
            _log(plan, trainer, meter, now - begun, trainer.held_out() if tested else None)
            meter = []
        if is_over[1] or is_last:
            saved = now
            if rank == 0:
                trainer.save(state)
        if is_last:
            break
    if rank == 0:
        weights = {n: w.detach().contiguous() for n, w in trainer.weights.items()}
        save_file(weights, str(Path(plan.out, "weights.safetensors")))
    if plan.processes > 1:
        dist.barrier()
        dist.destroy_process_group()


def _log(
    plan: Plan,
    trainer: Trainer,
    meter: list[dict[str, float]],
    seconds: float,
    held_out: float | None,
) -> None:
    row: dict[str, Any] = {"step": trainer.step, "seconds": round(seconds, 1)}
    row["rate"] = plan.factor(trainer.step)
    for key in ("loss", "score", "norm"):
        row[key] = round(sum(m[key] for m in meter) / len(meter), 5)
    row["held_out"] = held_out
    with Path(plan.out, "log.jsonl").open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row) + "\n")


def parse(argv: list[str] | None) -> Plan:
    parser = argparse.ArgumentParser(prog="python -m dsv41.tiny.train")
    parser.add_argument("--out", type=Path, required=True, help="directory of this run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4000, help="length of the schedule")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop earlier, to resume")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32, help="examples per process and step")
    parser.add_argument("--matrix-lr", type=float, default=0.02)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--bf16", action="store_true", help="matrix products in bfloat16")
    parser.add_argument("--target", type=Path, help="train drafts for these weights")
    a = parser.parse_args(argv)
    a.out.mkdir(parents=True, exist_ok=True)
    return Plan(
        str(a.out), a.seed, a.steps, a.minutes, a.processes, a.batch, a.matrix_lr, a.lr,
        a.bf16, a.target and str(a.target),
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    plan = parse(argv)
    if plan.processes == 1:
        work(0, plan)
    else:
        mp.spawn(work, args=(plan,), nprocs=plan.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
