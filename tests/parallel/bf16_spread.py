#!/usr/bin/env python3
"""bf16_spread.py CASE [RUNS]: what rounding to bf16 alone does to the gradient norms of a Llama case of
tests/golden. PyTorch trains it in fp32 and rounds where the layers do (weights, what each operation
puts out, its gradients; not the weights' gradients), from weights that differ by 2e-6 a run. Prints
each step's mean and standard deviation over the runs, relative to fp64: golden_curve_test.c has them.
Not a test: it needs PyTorch."""
import json
import math
import pathlib
import struct
import sys

import numpy as np
import torch
from torch.nn import functional

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
STEPS = 20
BATCH = {"llama-tiny": 4, "llama-tied": 2, "llama-deep": 16, "llama-deep-tied": 12}


def to_bf16(x):
    return x.to(torch.bfloat16).to(x.dtype)


class Rounded(torch.autograd.Function):
    """x rounded, and its gradient."""

    @staticmethod
    def forward(ctx, x):
        return to_bf16(x)

    @staticmethod
    def backward(ctx, grad):
        return to_bf16(grad)


class Shared(torch.autograd.Function):
    """x for several; their gradients are added one by one, each sum rounded."""

    @staticmethod
    def forward(ctx, x, num):
        return tuple(x.clone() for _ in range(num))

    @staticmethod
    def backward(ctx, *grads):
        total = to_bf16(grads[0])
        for grad in grads[1:]:
            total = to_bf16(total + grad)
        return total, None


rounded = Rounded.apply


def read_weights(path):
    raw = path.read_bytes()
    begin = 8 + struct.unpack("<Q", raw[:8])[0]
    weights = {}
    for name, t in json.loads(raw[8:begin]).items():
        if name != "__metadata__":
            first, end = t["data_offsets"]
            values = np.frombuffer(raw[begin + first:begin + end], np.float32)
            weights[name] = torch.from_numpy(values.reshape(t["shape"]).copy())
    return weights


def frequencies(config, dim):
    inv = config["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    scaling = config.get("rope_scaling")
    if not scaling:
        return inv
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    waves = scaling["original_max_position_embeddings"] * inv / (2 * math.pi)
    share = ((waves - low) / (high - low)).clamp(0, 1)
    return inv * (share + (1 - share) / scaling["factor"])


class Model:
    def __init__(self, config, length):
        self.config = config
        self.heads, self.kv = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim = config.get("head_dim") or config["hidden_size"] // self.heads
        angles = torch.outer(torch.arange(length, dtype=torch.float64),
                             frequencies(config, self.dim))
        self.cos = torch.cat([angles.cos()] * 2, -1).float()
        self.sin = torch.cat([angles.sin()] * 2, -1).float()
        self.mask = torch.full((length, length), -math.inf).triu(1)

    def norm(self, x, w):
        mean = x.pow(2).mean(-1, keepdim=True)
        return rounded(x * torch.rsqrt(mean + self.config["rms_norm_eps"]) * w)

    def rotate(self, x):
        half = self.dim // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return rounded(x * self.cos + turned * self.sin)

    def attention(self, w, at, x):
        rows, length, _ = x.shape

        def heads(x, name, num):
            y = rounded(x @ w[at + f"self_attn.{name}_proj.weight"].T)
            return y.view(rows, length, num, self.dim).transpose(1, 2)

        ways = Shared.apply(self.norm(x, w[at + "input_layernorm.weight"]), 3)
        q = self.rotate(heads(ways[0], "q", self.heads))
        k = self.rotate(heads(ways[1], "k", self.kv)).repeat_interleave(self.heads // self.kv, 1)
        v = heads(ways[2], "v", self.kv).repeat_interleave(self.heads // self.kv, 1)
        scores = q @ k.transpose(-1, -2) * self.dim**-0.5 + self.mask
        out = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(rows, length, -1)
        return rounded(x + rounded(out) @ w[at + "self_attn.o_proj.weight"].T)

    def mlp(self, w, at, x):
        ways = Shared.apply(self.norm(x, w[at + "post_attention_layernorm.weight"]), 2)
        gate = rounded(ways[0] @ w[at + "mlp.gate_proj.weight"].T)
        up = rounded(ways[1] @ w[at + "mlp.up_proj.weight"].T)
        act = rounded(functional.silu(gate) * up)
        return rounded(x + act @ w[at + "mlp.down_proj.weight"].T)

    def loss(self, w, windows):
        embed = w["model.embed_tokens.weight"]
        x = rounded(functional.embedding(windows[:, :-1], embed))
        for block in range(self.config["num_hidden_layers"]):
            at = f"model.layers.{block}."
            x = self.mlp(w, at, self.attention(w, at, x))
        head = embed if self.config["tie_word_embeddings"] else w["lm_head.weight"]
        logits = rounded(self.norm(x, w["model.norm.weight"]) @ head.T)
        return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def train(model, weights, reference, windows):
    """The gradient norms of all steps; `weights` are the masters, and change."""
    first = {name: torch.zeros_like(w) for name, w in weights.items()}
    second = {name: torch.zeros_like(w) for name, w in weights.items()}
    beta1, beta2 = reference["betas"]
    norms = []
    for step, lr in enumerate(reference["lr"], 1):
        used = {name: to_bf16(w).requires_grad_(True) for name, w in weights.items()}
        model.loss(used, windows[step - 1]).backward()
        norms.append(math.sqrt(sum(float(w.grad.double().pow(2).sum()) for w in used.values())))
        scale = min(1.0, reference["clip_grad_norm"] / (norms[-1] + 1e-6))
        for name, w in weights.items():
            grad = used[name].grad * scale
            if name in reference["decay"]:
                w.mul_(1 - lr * reference["weight_decay"])
            first[name].mul_(beta1).add_(grad, alpha=1 - beta1)
            second[name].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            root = (second[name] / (1 - beta2**step)).sqrt() + reference["eps"]
            w.sub_(lr * first[name] / (1 - beta1**step) / root)
    return np.array(norms)


def main():
    case, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 24
    folder = GOLDEN / case
    reference = json.loads((folder / "train.json").read_text())
    tokens = np.fromfile(folder / "train.bin", "<u2").astype(np.int64)
    windows = torch.from_numpy(tokens.reshape(STEPS, BATCH[case], -1))
    model = Model(json.loads((folder / "config.json").read_text()), windows.shape[2] - 1)
    off = []
    for run in range(runs):
        drawn = torch.Generator().manual_seed(run)
        weights = read_weights(folder / "model.safetensors")
        for w in weights.values():
            w.mul_(1 + 2e-6 * torch.randn(w.shape, generator=drawn))
        norms = train(model, weights, reference, windows)
        off.append(norms / np.array(reference["grad_norm_f64"]) - 1)
        print(f"run {run}:", " ".join(f"{100 * x:+.2f}%" for x in off[-1]), flush=True)
    for mean, deviation in zip(np.mean(off, 0), np.std(off, 0, ddof=1)):
        print(f"{{{mean:.4f}, {deviation:.4f}}},")


if __name__ == "__main__":
    main()
