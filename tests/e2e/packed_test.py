"""Packed documents through the real programs: the reference's curve over two ranks, what submit
refuses and how, and a file that changes at the wrong moment."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import bench_of_programs as bench  # noqa: E402
from bench_of_programs import ROOT, grpc  # noqa: E402

PACKED = ROOT / "tests/golden/sft-packed"


def packed_spec(s, name, path, steps=20, seq_len=48, batch=2, devices=1):
    spec = s.spec(name, steps=steps, devices=devices)
    spec.data.train[0].path, spec.data.train[0].format = str(path), "tokenized-jsonl"
    spec.data.train[0].ClearField("window")
    t = spec.training
    t.seq_len, t.global_batch_size, t.precision = seq_len, batch, "fp64"
    o, lr = t.optimizer, t.lr_schedule
    o.lr, o.weight_decay = 0.002, 0.1
    lr.warmup_steps, lr.decay, lr.decay_steps, lr.min_lr_ratio = 5, "cosine", 20, 0.1
    return spec


def refusal(s, spec):
    try:
        s.submit(spec)
    except grpc.RpcError as e:
        return e.details()
    raise AssertionError("it was taken")


def rows(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def row(num, labels=None, **more):
    ids = list(range(num))
    return {"input_ids": ids, "labels": labels or ids[1:] + [-100], **more}


def two_ranks_follow_the_reference(s):
    want = json.loads((PACKED / "train.json").read_text())
    job = s.submit(packed_spec(s, "sft", PACKED / "train.jsonl", devices=2))
    s.wait_state(job, "SUCCEEDED", "FAILED")
    got = s.curve(job)
    assert len(got) == 20, (s.get(job).message, got)
    for (step, _, loss, norm), l, n in zip(got, want["loss_f64"], want["grad_norm_f64"]):
        assert abs(loss / l - 1) < 1e-12 and abs(norm / n - 1) < 1e-12, (step, loss, l, norm, n)


def submit_refuses_what_cannot_be_trained_on(s):
    path = s.folder / "wrong.jsonl"
    for line, words in (
            (row(49), "wrong.jsonl:2: the row has 49 tokens, training.seq_len is 48"),
            (row(4, [1, 2, 3, 300]), "holds token 300, the model's vocab_size is"),
            (row(4, [1, 2, 3]), "wrong.jsonl:2: labels has 3 numbers, input_ids 4"),
            (row(4, position_id=[0, 1, 2, 3]), "did you mean position_ids?"),
            (row(4, position_ids=[0, 1, 0, 1]), "segment_ids has to say so"),
            (row(3, [0.0, 1, 2]), "labels[0] is 0.0, a fraction by its writing")):
        text = refusal(s, packed_spec(s, "wrong", rows(path, row(5), line)))
        assert text.startswith("data.train: ") and words in text, text
    nothing = row(4, [-100] * 4)
    text = refusal(s, packed_spec(s, "wrong", rows(path, nothing, nothing)))
    assert "every label of its 2 rows is -100, so there is nothing to learn" in text, text
    spec = packed_spec(s, "wrong", PACKED / "train.jsonl")
    spec.data.train[0].window = "T+1"
    assert "window: T+1: a row of tokenized-jsonl is a sample as it is" in refusal(s, spec)


def the_example_in_the_docs_trains(s):
    code = (ROOT / "docs/data.md").read_text().split("```python\n")[1].split("```")[0]
    code = code.replace('"train.jsonl"', repr(str(s.folder / "docs.jsonl")))
    documents = [(list(range(1, 4 + i % 7)), list(range(50, 52 + i % 9))) for i in range(40)]
    exec(code, {"documents": documents, "SEQ_LEN": 48})
    first = json.loads((s.folder / "docs.jsonl").read_text().splitlines()[0])
    # The last of the prompt has the answer's first as its target, the answer's last has none.
    assert first["input_ids"][:8] == [1, 2, 3, 50, 51, 1, 2, 3], first
    assert first["labels"][:8] == [-100, -100, 50, 51, -100, -100, -100, -100], first
    assert first["segment_ids"][:8] == [0, 0, 0, 0, 0, 1, 1, 1], first
    job = s.submit(packed_spec(s, "docs", s.folder / "docs.jsonl", steps=2))
    s.wait_state(job, "SUCCEEDED", "FAILED")
    assert len(s.curve(job)) == 2, s.get(job).message


def an_answer_of_the_probe_goes_with_the_file(s):
    """Looked at anew when it has changed, though its answer was kept."""
    path = rows(s.folder / "changing.jsonl", row(5), row(6))
    request = s.m.jobs.SubmitRequest(spec=packed_spec(s, "dry", path), dry_run=True)
    for num in (2, 2, 3):
        rows(path, *[row(5)] * num)
        notes = s.jobs.Submit(request, timeout=bench.DEADLINE).plan.notes
        assert any(f"({num} samples of 48 tokens)" in note for note in notes), notes


def a_file_that_changed_before_the_start_is_refused(s):
    blocker = s.submit(s.spec("blocker", steps=1000000, devices=2))
    s.wait_state(blocker, "RUNNING")
    path = rows(s.folder / "late.jsonl", row(5), row(6))
    job = s.submit(packed_spec(s, "late", path))
    rows(path, row(5), row(6), row(7))
    s.jobs.Cancel(s.m.jobs.JobRef(job=str(blocker)), timeout=bench.DEADLINE)
    s.wait_state(job, "FAILED")
    message = s.get(job).message
    assert "has 3 rows, had 2 when the job was planned" in message, message


def a_step_without_targets_fails_with_its_lines(s):
    path = rows(s.folder / "holes.jsonl", row(5), row(6), row(7, [-100] * 7), row(8, [-100] * 8))
    job = s.submit(packed_spec(s, "holes", path, devices=2))
    s.wait_state(job, "FAILED")
    message = s.get(job).message
    assert "step 2: " in message and "(lines 3, 4)" in message, message


def main():
    bench.run_tests(lambda *args: bench.Server(*args, devices=2),
                    [two_ranks_follow_the_reference,
                     submit_refuses_what_cannot_be_trained_on,
                     the_example_in_the_docs_trains,
                     an_answer_of_the_probe_goes_with_the_file,
                     a_file_that_changed_before_the_start_is_refused,
                     a_step_without_targets_fails_with_its_lines])


if __name__ == "__main__":
    main()
