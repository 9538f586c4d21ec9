"""What a kernel may take of a GPU: a budget for each that a step spends its time in.

warps: at least so many on a multiprocessor at once, by arithmetic, of sm_80 and sm_90; what bounds a
kernel by memory needs them to hide latency. needs: instructions that must be there. dynamic: bytes
of shared memory that its launcher asks for. Kernels that aren't named here must only hold the rules
for all (kernels_test.py)."""
import re

TILE_ROWS = 64  # kernels/cuda/attention.cuh: ATTENTION_TILE


def shape(name):
    """The numbers and truths of the last template argument: dq_shape<128, 32, false, 2>."""
    found = re.search(r"_shape<([^<>]*)>", name)
    return [{"true": 1, "false": 0}.get(word, word) for word in found[1].split(", ")] if found else []


def fwd_bytes(name):
    head, parts, _, kept, _ = map(int, shape(name))
    return (4 * TILE_ROWS * head + (0 if kept else 64 * parts * head)) * 2


def dq_bytes(name):
    head, keys, _, _ = map(int, shape(name))
    return (2 * 128 * head + 4 * keys * head) * 2 + 2 * 128 * 4


def dkv_bytes(name):
    head, _ = map(int, shape(name))
    return 4 * TILE_ROWS * head * 2 + 2 * TILE_ROWS * 32 * 4 + 4 * TILE_ROWS * 4


READ, WRITE = "LDG.128", "STG.128"
TENSOR = ("HMMA", "LDSM", "LDGSTS.128", WRITE)

# (source, name, warps on sm_80, on sm_90, needs, dynamic)
BUDGETS = [
    ("attention_fwd", r"fwd_shape<(32|64|96),", 8, 8, TENSOR, fwd_bytes),
    ("attention_fwd", r"fwd_shape<128,", 4, 8, TENSOR, fwd_bytes),
    ("attention_dq", r"dq_shape<32,", 12, 12, TENSOR, dq_bytes),
    ("attention_dq", r"dq_shape<(64|96),", 8, 8, TENSOR, dq_bytes),
    ("attention_dq", r"dq_shape<128,", 4, 8, TENSOR, dq_bytes),
    ("attention_dkv", r"dkv_shape<(32|64),", 12, 12, TENSOR, dkv_bytes),
    ("attention_dkv", r"dkv_shape<(96|128),", 8, 8, TENSOR, dkv_bytes),
    ("attention", r"dots_kernel<__nv_bfloat16, 8>", 32, 32, (READ,), 0),
    ("cross_entropy", r"<__nv_bfloat16, 8>", 32, 32, (READ, WRITE), 0),
    ("vocabulary_parts", r"<__nv_bfloat16, 8>", 48, 48, (READ,), 0),
    ("rmsnorm", r"fwd_kernel<__nv_bfloat16, 8>", 56, 56, (READ, WRITE), 0),
    ("rmsnorm", r"bwd_held_kernel<__nv_bfloat16, [123]>", 24, 24, (READ, WRITE), 0),
    ("rmsnorm", r"bwd_held_kernel<__nv_bfloat16, 4>", 16, 16, (READ, WRITE), 0),
    ("layernorm", r"fwd_kernel<__nv_bfloat16, 8>", 48, 48, (READ, WRITE), 0),
    ("layernorm", r"bwd_held_kernel<__nv_bfloat16", 24, 24, (READ, WRITE), 0),
    ("rope", r"<__nv_bfloat16, 8>", 32, 32, (READ, WRITE), 0),
    ("swiglu", r"<8, .*bfloat16", 48, 48, (READ, WRITE), 0),
    ("gelu", r"<8, .*bfloat16", 48, 48, (READ, WRITE), 0),
    ("elementwise", r"<8, .*bfloat16", 48, 48, (READ, WRITE), 0),
    ("cast", r"<8, cast_each<(__nv_bfloat16, float|float, __nv_bfloat16)>", 48, 48, (READ, WRITE), 0),
    ("embed_fwd", r"<__nv_bfloat16, 8>", 56, 56, (READ, WRITE), 0),
    ("embed_bwd", r"piece_kernel<__nv_bfloat16, 8>", 40, 40, (READ, WRITE), 0),
    ("column_sum", r"<__nv_bfloat16, 8>", 48, 48, (READ,), 0),
    ("epilogue", r"<__nv_bfloat16, __nv_bfloat16, 8>", 40, 40, (READ, WRITE), 0),
    ("step", r"step_kernel<true>", 40, 40, (READ, WRITE), 0),
    ("sum_squares", r"sum_squares_kernel<float>", 48, 48, (READ,), 0),
]
