#include "drawn.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"

int64_t drawn_pick(struct drawn *d, struct drawn_list list)
{
    return list.at[rng_u64(d->seed, rng_stream(d->stream), d->next++) % list.num];
}

int64_t drawn_divisor_of(struct drawn *d, int64_t n)
{
    int64_t list[64];
    size_t num = 0;
    for (int64_t i = 1; i <= n; i++)
        if (n % i == 0 && num < 64)
            list[num++] = i;
    return drawn_pick(d, (struct drawn_list){list, num});
}

void drawn_shape(struct drawn *d, const struct drawn_choice *from)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3", "gpt2"};
    struct shape *s = &d->shape;
    ASSERT(from->heads.num == from->kv_heads.num);
    size_t group = rng_u64(d->seed, rng_stream(d->stream), d->next++) % from->heads.num;
    s->family = families[PICK(d, 0, 1, 2, 3)];
    bool gpt2 = strcmp(s->family, "gpt2") == 0;
    s->heads = from->heads.at[group];
    s->kv_heads = gpt2 ? s->heads : from->kv_heads.at[group];
    s->head_dim = drawn_pick(d, from->head_dim);
    /* Two elements that are small by chance, normed: a gradient so large that fp32 isn't near. */
    if (strcmp(s->family, "qwen3") == 0 && s->head_dim == 2)
        s->head_dim = 8;
    s->hidden = gpt2 ? s->heads * s->head_dim : drawn_pick(d, from->hidden);
    s->ffn = s->heads * drawn_pick(d, from->heads_to_ffn);
    s->layers = PICK(d, 1, 2, 3);
    s->vocab = drawn_pick(d, from->vocab);
    s->seq_len = drawn_pick(d, s->vocab > 1000 ? from->large_vocab_seq_len : from->seq_len);
    s->batch = drawn_pick(d, from->batch);
    if (from->long_batch.num > 0 && (s->seq_len > 64 || s->head_dim > 64))
        s->batch = drawn_pick(d, from->long_batch);
    s->tied = gpt2 || PICK(d, 0, 1) != 0;
    s->llama3 = !gpt2 && PICK(d, 0, 1) != 0;
}

void drawn_layout(struct drawn *d, struct drawn_list data, int64_t max_ranks)
{
    const struct shape *s = &d->shape;
    do {
        d->data = drawn_pick(d, data);
        d->tensor = drawn_divisor_of(d, s->heads);
    } while (s->batch % d->data != 0 || (max_ranks > 0 && d->data * d->tensor > max_ranks) ||
             (s->kv_heads % d->tensor != 0 && d->tensor % s->kv_heads != 0));
    d->zero_stage = PICK(d, 0, 1, 2, 3);
    d->shard_size = d->zero_stage > 0 && PICK(d, 0, 1) != 0 ? drawn_divisor_of(d, d->data) : 0;
    d->sequence_parallel = PICK(d, 0, 1) != 0;
    d->micro = drawn_divisor_of(d, s->batch / d->data);
}

void drawn_bucket_and_clip(struct drawn *d)
{
    static const char *const buckets[] = {"0.001", "0.05", "25"};
    static const char *const clips[] = {"0", "0.05", "1.0"};
    d->bucket_mb = buckets[PICK(d, 0, 1, 2)];
    d->clip = clips[PICK(d, 0, 1, 2)];
}

void drawn_words(const struct drawn *d, char *out, size_t size)
{
    const struct shape *s = &d->shape;
    snprintf(out, size,
             "%s, heads %lld/%lld x %lld, hidden %lld, ffn %lld, layers %lld, vocab %lld%s%s, "
             "seq %lld, batch %lld, data %lld, tensor %lld%s, zero_stage %lld, shard_size %lld, "
             "micro %lld, %s%s, window %s, bucket_mb %s, clip %s, %s",
             s->family, (long long)s->heads, (long long)s->kv_heads, (long long)s->head_dim,
             (long long)s->hidden, (long long)s->ffn, (long long)s->layers, (long long)s->vocab,
             s->tied ? ", tied" : "", s->llama3 ? ", llama3 rope" : "", (long long)s->seq_len,
             (long long)s->batch, (long long)d->data, (long long)d->tensor,
             d->sequence_parallel ? " with sequence" : "", (long long)d->zero_stage,
             (long long)d->shard_size, (long long)d->micro, d->packed ? "packed " : "",
             d->shuffled ? "shuffled" : "sequential", d->shared_token ? "T" : "T+1", d->bucket_mb,
             d->clip, d->adam ? "adamw" : "sgd");
}

struct gang_spec drawn_spec(const struct drawn *d, const struct shape_files *files, int64_t steps)
{
    return (struct gang_spec){
        .golden = &files->sizes,
        .model_path = files->dir,
        .data_path = d->packed ? files->packed : files->tokens,
        .format = d->packed ? "tokenized-jsonl" : "u16",
        .window = d->packed || d->shared_token ? "T" : "T+1",
        .order = d->shuffled ? "shuffled" : "sequential",
        .steps = steps,
        .clip = d->clip,
        .optimizer = d->adam ? NULL : "name: sgd, lr: 0.05, weight_decay: 0.01",
    };
}

void drawn_lay_out(const struct drawn *d, struct gang_spec *spec)
{
    spec->data = d->data;
    spec->tensor = d->tensor;
    spec->zero_stage = d->zero_stage;
    spec->shard_size = d->shard_size;
    spec->sequence_parallel = d->sequence_parallel;
    spec->micro = d->micro;
    spec->bucket_mb = d->bucket_mb;
}
