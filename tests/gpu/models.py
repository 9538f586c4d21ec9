"""The models of tests/gpu/run: configurations, folders with made-up weights, tokens. Drawing billions of normal
numbers takes minutes, so a block of them is written again and again: times don't depend on the weights, as long as
they are numbers like those of a model."""
import array
import json
import random
import struct

GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
        "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
        "layer_norm_epsilon": 1e-5, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "tie_word_embeddings": True}


def llama(layers, hidden, ffn, heads, kv, vocab, tied, positions=8192):
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
            "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": hidden // heads,
            "max_position_embeddings": positions, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
            "rope_scaling": None, "tie_word_embeddings": tied, "attention_bias": False, "mlp_bias": False}


def llama_1b():
    return llama(16, 2048, 8192, 32, 8, 128256, True)


def llama_8b(layers):
    return llama(layers, 4096, 14336, 32, 8, 128256, False)


def tiny(name):
    if name == "gpt2":
        return dict(GPT2, vocab_size=131, n_positions=64, n_embd=64, n_layer=2, n_head=2)
    return llama(2, 64, 96, 2, 1, 131, name == "1b", 64)


def tensors(c):
    """(name, shape, all ones?) of each parameter, as Hugging Face has them."""
    if c["model_type"] == "gpt2":
        d = c["n_embd"]
        yield "transformer.wte.weight", (c["vocab_size"], d), False
        yield "transformer.wpe.weight", (c["n_positions"], d), False
        for i in range(c["n_layer"]):
            h = f"transformer.h.{i}."
            for norm in ("ln_1", "ln_2"):
                yield f"{h}{norm}.weight", (d,), True
                yield f"{h}{norm}.bias", (d,), False
            for linear, rows, columns in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d),
                                          ("mlp.c_fc", d, 4 * d), ("mlp.c_proj", 4 * d, d)):
                yield f"{h}{linear}.weight", (rows, columns), False
                yield f"{h}{linear}.bias", (columns,), False
        yield "transformer.ln_f.weight", (d,), True
        yield "transformer.ln_f.bias", (d,), False
        return
    d, ffn, e = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    kv = c["num_key_value_heads"] * e
    yield "model.embed_tokens.weight", (c["vocab_size"], d), False
    for i in range(c["num_hidden_layers"]):
        h = f"model.layers.{i}."
        yield f"{h}input_layernorm.weight", (d,), True
        yield f"{h}post_attention_layernorm.weight", (d,), True
        q = c["num_attention_heads"] * e
        for name, rows, columns in (("q", q, d), ("k", kv, d), ("v", kv, d), ("o", d, q)):
            yield f"{h}self_attn.{name}_proj.weight", (rows, columns), False
        for name, rows, columns in (("gate", ffn, d), ("up", ffn, d), ("down", d, ffn)):
            yield f"{h}mlp.{name}_proj.weight", (rows, columns), False
    yield "model.norm.weight", (d,), True
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d), False


def bf16(x):
    return struct.unpack("<I", struct.pack("<f", x))[0] >> 16


def block(n):
    draw = random.Random(7)
    return array.array("H", (bf16(draw.gauss(0, 0.02)) for _ in range(n))).tobytes()


def write_model(folder, config):
    """config.json and model.safetensors (bf16). Returns the number of parameters."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, at, parts = {}, 0, []
    for name, shape, ones in tensors(config):
        numel = 1
        for side in shape:
            numel *= side
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + 2 * numel]}
        parts.append((2 * numel, ones))
        at += 2 * numel
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # A length that no row's is a multiple of, so that rows differ.
    normal = block(min(at // 2 + 1, 999983))
    one = struct.pack("<H", bf16(1.0))
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for size, ones in parts:
            if ones:
                f.write(one * (size // 2))
            while not ones and size > 0:
                f.write(normal[:size])
                size -= min(size, len(normal))
    return at // 2


def write_tokens(path, num, vocab):
    """u32 tokens, without a pattern."""
    draw = random.Random(11)
    some = [int(draw.random() * vocab) for _ in range(min(num, 200_003))]
    numbers = array.array("I", some)
    while len(numbers) < num:
        numbers.extend(numbers[:num - len(numbers)])
    with open(path, "wb") as f:
        numbers.tofile(f)
