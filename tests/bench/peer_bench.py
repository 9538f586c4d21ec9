#!/usr/bin/env python3
"""The same GPT-2 through our step and through PyTorch's, in turns.

    /usr/bin/python3 tests/bench/peer_bench.py BUILD_DIR [ROUNDS [SEQ_LEN [MICRO [LAYERS [THREADS]]]]]

Random weights, AdamW, fp32. PyTorch (Debian: python3-torch) runs as fast as we could
make it: huge pages for malloc, no memory given back, AVX-512, sleeping OpenMP threads. The last
line is the ratio of the best steps of each. The peak is that of a square product, by either. On a
machine that others use as well only processor time says something, and of one thread at that:
threads that wait for a neighbour spin.
"""
import os
import subprocess
import sys
import time

TUNED = {
    "OPENBLAS_CORETYPE": "SkylakeX",  # 0.3.21 doesn't know newer ones and takes its slowest code
    "OMP_WAIT_POLICY": "passive",
    "ATEN_CPU_CAPABILITY": "avx512",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
}
VOCAB, WIDTH, HEADS = 50257, 768, 12


def start_again_tuned():
    """These are read when a process starts."""
    if os.environ.get("PEER_BENCH") is None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS")}
        env["OPENBLAS_NUM_THREADS"] = sys.argv[6] if len(sys.argv) > 6 else "2"
        os.execve(sys.executable, [sys.executable] + sys.argv, {**env, **TUNED, "PEER_BENCH": "1"})


def make_peer(layers, seq_len, micro, threads):
    """A step, a square matrix product, and the latter's operations."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x, mask):
            b, t, d = x.shape
            q, k, v = (y.view(b, t, HEADS, d // HEADS).transpose(1, 2)
                       for y in self.qkv(self.norm1(x)).split(WIDTH, dim=2))
            scores = (q @ k.transpose(-2, -1)) * (d // HEADS) ** -0.5
            probs = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
            x = x + self.out((probs @ v).transpose(1, 2).reshape(b, t, d))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(1024, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(WIDTH)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids, targets, mask):
            x = self.tokens(ids) + self.places.weight[:ids.shape[1]]
            for block in self.blocks:
                x = block(x, mask)
            logits = self.norm(x) @ self.tokens.weight.t()
            return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model()
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, foreach=True)
    mask = torch.triu(torch.ones(seq_len, seq_len, dtype=torch.bool), 1)
    ids = torch.randint(0, VOCAB, (micro, seq_len + 1))
    square = torch.rand(1024, 1024)

    def step():
        adamw.zero_grad(set_to_none=False)
        loss = model(ids[:, :-1], ids[:, 1:], mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        return loss.item()

    def product():
        torch.mm(square, square)

    return step, product, 2.0 * 1024 ** 3


def timed(f):
    begin, cpu = time.perf_counter(), time.process_time()
    f()
    return (time.perf_counter() - begin) * 1e3, (time.process_time() - cpu) * 1e3


def run_ours(build, seq_len, micro, layers, threads):
    """Its lines: step MS PROCESSOR_MS, flops A_STEP, peak BY_CLOCK OF_ONE_THREAD."""
    args = [build + "/bin/layout_bench", "gpt2", "steps"]
    args += [str(n) for n in (seq_len, micro, layers, threads)]
    out = subprocess.run(args, check=True, capture_output=True, text=True).stdout
    lines = [line.split() for line in out.splitlines()]
    return {word: [[float(n) for n in line[1:]] for line in lines if line[0] == word]
            for word in ("step", "flops", "peak")}


def best(steps, which):
    return min(s[which] for s in steps)


def main():
    start_again_tuned()
    usual = [3, 256, 4, 12, 2]
    given = [int(a) for a in sys.argv[2:]]
    rounds, seq_len, micro, layers, threads = given + usual[len(given):]
    step, product, product_flops = make_peer(layers, seq_len, micro, threads)
    timed(step)
    peer, ours, products, peaks = [], [], [], []
    for _ in range(rounds):
        peer += [timed(step) for _ in range(2)]
        products += [timed(product) for _ in range(10)]
        found = run_ours(sys.argv[1], seq_len, micro, layers, threads)
        ours += found["step"]
        peaks += found["peak"]
        flops = found["flops"][0][0]
    theirs = [product_flops / best(products, i) * 1e3 for i in (0, 1)]
    own = [max(p[i] for p in peaks) for i in (0, 1)]
    peak = [max(theirs[i], own[i]) for i in (0, 1)]
    print("GPT-2 of %d layers, %d x %d tokens, %d threads; share of the best square product "
          "(tandem's / PyTorch's: by the clock %.2f, by processor time %.2f)" %
          (layers, micro, seq_len, threads, own[0] / theirs[0], own[1] / theirs[1]))
    for name, steps in (("tandem", ours), ("PyTorch", peer)):
        print("  %-8s by the clock %6.0f ms, %5.0f tokens/s, %4.1f %%; by processor time %6.0f ms, "
              "%4.1f %%" % (name, best(steps, 0), micro * seq_len / best(steps, 0) * 1e3,
                            1e5 * flops / best(steps, 0) / peak[0], best(steps, 1),
                            1e5 * flops / best(steps, 1) / peak[1]))
    print("  tandem's speed, PyTorch = 1: %.2f by the clock, %.2f by processor time" %
          (best(peer, 0) / best(ours, 0), best(peer, 1) / best(ours, 1)))


main()
