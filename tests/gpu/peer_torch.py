#!/usr/bin/env python3
"""The same model in PyTorch, as its users train it: fp32 weights under bf16 autocast, its own attention and fused
AdamW, gradients clipped at 1. Prints a JSON object.

    peer_torch.py CONFIG.json --t T --micro N --steps N [--compile] [--device cuda]
"""
import argparse
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class LayerNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.float()).to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps).to(x.dtype)


def turn(x, cos, sin):
    """Halves of each head, as Hugging Face pairs them."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m
        d, e = m.width, m.head
        bias = m.is_gpt2
        norm = (lambda: LayerNorm(d, m.eps)) if m.is_gpt2 else (lambda: RMSNorm(d, m.eps))
        self.before_attention, self.before_mlp = norm(), norm()
        self.qkv = nn.Linear(d, (m.heads + 2 * m.kv) * e, bias=bias)
        self.out = nn.Linear(m.heads * e, d, bias=bias)
        self.up = nn.Linear(d, m.ffn if m.is_gpt2 else 2 * m.ffn, bias=bias)
        self.down = nn.Linear(m.ffn, d, bias=bias)

    def attention(self, x, cos, sin):
        m, (b, t, _) = self.m, x.shape
        q, k, v = self.qkv(x).view(b, t, -1, m.head).transpose(1, 2).split((m.heads, m.kv, m.kv), dim=1)
        if not m.is_gpt2:
            q, k = turn(q, cos, sin), turn(k, cos, sin)
        grouped = {"enable_gqa": True} if m.kv != m.heads else {}
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)
        return self.out(o.transpose(1, 2).reshape(b, t, -1))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.before_attention(x), cos, sin)
        y = self.up(self.before_mlp(x))
        if self.m.is_gpt2:
            return x + self.down(F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.is_gpt2 = c["model_type"] == "gpt2"
        if self.is_gpt2:
            self.width, self.heads, self.num = c["n_embd"], c["n_head"], c["n_layer"]
            self.kv, self.ffn, self.eps = self.heads, 4 * self.width, c["layer_norm_epsilon"]
            self.positions = nn.Embedding(c["n_positions"], self.width)
        else:
            self.width, self.heads, self.num = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
            self.kv, self.ffn, self.eps = c["num_key_value_heads"], c["intermediate_size"], c["rms_norm_eps"]
        self.head, self.theta = self.width // self.heads, c.get("rope_theta", 10000.0)
        self.tokens = nn.Embedding(c["vocab_size"], self.width)
        self.layers = nn.ModuleList(Layer(self) for _ in range(self.num))
        self.norm = LayerNorm(self.width, self.eps) if self.is_gpt2 else RMSNorm(self.width, self.eps)
        self.logits = nn.Linear(self.width, c["vocab_size"], bias=False)
        if c["tie_word_embeddings"]:
            self.logits.weight = self.tokens.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        t = ids.shape[1]
        at = torch.arange(t, device=ids.device)
        x = self.tokens(ids)
        cos = sin = None
        if self.is_gpt2:
            x = x + self.positions(at)
        else:
            half = torch.arange(0, self.head, 2, device=ids.device).float() / self.head
            angle = at.float()[:, None] / self.theta ** half
            cos, sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
        x = x.to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x, cos, sin)
        y = self.logits(self.norm(x))
        return F.cross_entropy(y.view(-1, y.shape[-1]), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--t", type=int, required=True)
    parser.add_argument("--micro", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    with open(args.config) as f:
        config = json.load(f)
    gpu = args.device == "cuda"
    if gpu and not torch.cuda.is_available():
        sys.exit("peer_torch: torch sees no GPU")
    torch.manual_seed(1)
    with torch.device(args.device):
        model = Model(config)
        ids = torch.randint(config["vocab_size"], (args.micro, args.t + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  **({"fused": True} if gpu else {}))
    run = torch.compile(model) if args.compile else model

    def wait():
        if gpu:
            torch.cuda.synchronize()

    begin, times, loss = time.perf_counter(), [], None
    for _ in range(args.steps):
        wait()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        wait()
        times.append(time.perf_counter() - start)
    # The first steps compile and choose.
    late = sorted(times[min(3, len(times) - 1):])
    print(json.dumps({
        "torch": torch.__version__, "compile": args.compile, "num_params": sum(p.numel() for p in model.parameters()),
        "ms": 1e3 * late[len(late) // 2], "first_ms": 1e3 * times[0], "all_s": time.perf_counter() - begin,
        "tokens_per_s": args.micro * args.t / late[len(late) // 2], "loss": float(loss),
        "memory_bytes": torch.cuda.max_memory_allocated() if gpu else 0}))


if __name__ == "__main__":
    main()
