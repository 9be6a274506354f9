"""Trains WaveFormer on the synthetic EMG of ``epu.models`` and writes python/epu/models/data/waveformer_weights.npz.

PyTorch is needed here and nowhere else: in an environment with the project, `pip install torch==2.13.0`, then
`python tools/train_waveformer.py`. Some ten minutes on one core; the same machine and thread count give the same
weights. tools/quantize_waveformer.py makes the int8 model of them.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from epu.models.semg import waveformer_windows
from epu.models.waveformer import (
    BLOCKS,
    CLASSES,
    ELECTRODES,
    EPSILON,
    HEAD_SIZE,
    HEADS,
    PATCH,
    SAMPLES,
    TOKENS,
    WIDTH,
    rotary_tables,
)
from epu.models.waveformer_weights import WEIGHTS_FILE, save_weights

Parameters = dict[str, torch.Tensor]

SEED = 7
BATCH = 32
PEAK_RATE = 8e-4
WEIGHT_DECAY = 0.05
SMOOTHING = 0.05  # of the labels, which keeps logits within a few units
KEPT_PLACES = 3  # of an electrode's 20 patches in the first stage: six times as many steps in the same time
SAMPLE_RATE = 1000.0


def initial_parameters(random: torch.Generator) -> Parameters:
    """Return fresh weights named as in the PyTorch checkpoint; patch filters start as wavelets of 20 to 450 Hz."""
    weights: Parameters = {
        "patch_embed.proj.weight": wavelets(random),
        "patch_embed.proj.bias": 0.5 * torch.randn(WIDTH, generator=random),
        "cls_token": 0.5 * torch.randn(1, 1, WIDTH, generator=random),
    }
    for name in ("patch_embed.norm", "norm", "fc_norm"):
        weights |= {f"{name}.weight": torch.ones(WIDTH), f"{name}.bias": torch.zeros(WIDTH)}
    for block in (f"blocks.{index}" for index in range(BLOCKS)):
        for name in ("norm1", "norm2"):
            weights |= {f"{block}.{name}.weight": torch.ones(WIDTH), f"{block}.{name}.bias": torch.zeros(WIDTH)}
        deep = 1 / math.sqrt(2 * BLOCKS)  # of what a residual branch adds
        weights |= linear(random, f"{block}.attn.qkv", 3 * WIDTH) | linear(random, f"{block}.attn.proj", WIDTH, deep)
        weights |= linear(random, f"{block}.mlp.fc1", WIDTH) | linear(random, f"{block}.mlp.fc2", WIDTH, deep)
    return weights | linear(random, "head", CLASSES, 0.2)


def linear(random: torch.Generator, name: str, outputs: int, gain: float = 1.0) -> Parameters:
    weight = torch.randn(outputs, WIDTH, generator=random) * (gain / math.sqrt(WIDTH))
    return {f"{name}.weight": weight, f"{name}.bias": torch.zeros(outputs)}


def wavelets(random: torch.Generator) -> torch.Tensor:
    """Return [width, 1, 1, patch] windowed sines of random frequency and phase."""
    time_axis = (torch.arange(PATCH) - PATCH / 2) / SAMPLE_RATE
    frequency = 20 * (450 / 20) ** torch.rand(WIDTH, 1, generator=random)
    phase = 2 * math.pi * torch.rand(WIDTH, 1, generator=random)
    waves = torch.hann_window(PATCH) * torch.sin(2 * math.pi * frequency * time_axis + phase)
    return waves.reshape(WIDTH, 1, 1, PATCH)


def forward(weights: Parameters, windows: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return logits [batch, classes] of windows [batch, 1, 8, 1000]; attention sees the patches ``kept`` only."""
    image = F.conv2d(windows, weights["patch_embed.proj.weight"], weights["patch_embed.proj.bias"], stride=(1, PATCH))
    patches = image.flatten(2).transpose(1, 2)[:, kept]
    tokens = F.gelu(norm(weights, "patch_embed.norm", patches))
    tokens = torch.cat([weights["cls_token"].expand(len(windows), -1, -1), tokens], dim=1)
    places = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + kept])
    cosine, sine = (torch.from_numpy(table)[0, :, 0][places] for table in rotary_tables())
    for block in (f"blocks.{index}" for index in range(BLOCKS)):
        tokens = tokens + attention(weights, block, norm(weights, f"{block}.norm1", tokens), cosine, sine)
        hidden = F.gelu(dense(weights, f"{block}.mlp.fc1", norm(weights, f"{block}.norm2", tokens)))
        tokens = tokens + dense(weights, f"{block}.mlp.fc2", hidden)
    return dense(weights, "head", norm(weights, "fc_norm", norm(weights, "norm", tokens)[:, 0]))


def attention(
    weights: Parameters, block: str, tokens: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
) -> torch.Tensor:
    qkv = dense(weights, f"{block}.attn.qkv", tokens).unflatten(-1, (3, HEADS, HEAD_SIZE))
    query, key, value = qkv.permute(2, 0, 3, 1, 4)
    query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
    mixed = F.scaled_dot_product_attention(query, key, value)
    return dense(weights, f"{block}.attn.proj", mixed.transpose(1, 2).flatten(2))


def rotate(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    even, odd = heads.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)


def dense(weights: Parameters, name: str, source: torch.Tensor) -> torch.Tensor:
    return F.linear(source, weights[f"{name}.weight"], weights[f"{name}.bias"])


def norm(weights: Parameters, name: str, source: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(source, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON)


def some_patches(random: torch.Generator) -> torch.Tensor:
    """Return the indices of KEPT_PLACES random patches of each electrode."""
    places = torch.rand(ELECTRODES, SAMPLES // PATCH, generator=random).argsort(1)[:, :KEPT_PLACES].sort(1).values
    return (places + torch.arange(ELECTRODES)[:, None] * (SAMPLES // PATCH)).flatten()


def train(windows: torch.Tensor, labels: torch.Tensor, short_steps: int, full_steps: int) -> Parameters:
    """Return weights trained on some patches for ``short_steps``, then on all of them for ``full_steps``."""
    random = torch.Generator().manual_seed(SEED)
    weights = {name: tensor.requires_grad_() for name, tensor in initial_parameters(random).items()}
    steps = short_steps + full_steps
    optimizer = adam(weights)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=steps, pct_start=0.1)
    epochs = 1 + steps * BATCH // len(windows)
    order = torch.cat([torch.randperm(len(windows), generator=random) for _ in range(epochs)])
    for step, batch in enumerate(order[: steps * BATCH].split(BATCH)):
        kept = some_patches(random) if step < short_steps else torch.arange(TOKENS - 1)
        loss = F.cross_entropy(forward(weights, windows[batch], kept), labels[batch], label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            print(f"step {step + 1} of {steps}: loss {loss:.3f}", flush=True)
    return {name: tensor.detach() for name, tensor in weights.items()}


def adam(weights: Parameters) -> torch.optim.Optimizer:
    """Return the optimizer; vectors do not decay."""
    decayed = [tensor for tensor in weights.values() if tensor.ndim > 1]
    others = [tensor for tensor in weights.values() if tensor.ndim == 1]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, PEAK_RATE, betas=(0.9, 0.98))


def accuracy(weights: Parameters, windows: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        logits = torch.cat([forward(weights, part, torch.arange(TOKENS - 1)) for part in windows.split(50)])
    return float((logits.argmax(1) == labels).float().mean())


def dataset(split: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    windows, labels = waveformer_windows(split, count)
    return torch.from_numpy(windows), torch.from_numpy(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=6000)
    parser.add_argument("--short-steps", type=int, default=800)
    parser.add_argument("--full-steps", type=int, default=80)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=WEIGHTS_FILE)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    weights = train(*dataset("train", arguments.windows), arguments.short_steps, arguments.full_steps)
    print(f"accuracy on 600 test windows: {accuracy(weights, *dataset('test', 600)):.3f}")
    save_weights(arguments.output, {name: np.asarray(tensor) for name, tensor in weights.items()})


if __name__ == "__main__":
    main()
