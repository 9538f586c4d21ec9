#!/usr/bin/env python3
"""faults_test.py VARIANT PROGRAM: each fault is found by the tool that has to find it, in words, and
its right twin passes in all nine schedules (with TANDEM_SAMPLE=1 in three).

VARIANT says how PROGRAM (cusim_faults) was compiled: plain, asan (with UBSan), tsan."""
import itertools
import os
import subprocess
import sys

SCHEDULES = [f"{threads},{streams},{seed}"
             for seed, (threads, streams) in enumerate(
                 itertools.product(("forward", "reverse", "random"), ("eager", "lazy", "random")), 1)]

# What the engine says itself, in every variant and schedule.
ENGINE = {
    "divergent_barrier": "divergent barrier",
    "barrier_after_return": ("a barrier after", "returns while"),
    "missing_lanes": "deadlock",
    "lane_outside_mask": "isn't in the mask",
    "exited_lanes": ("have returned", "deadlock"),
    "reads_outside_mask": "a shuffle reads lane 16",
    "divergent_warp": "divergent warp",
    "copy_left_behind": "nobody has waited for",
    "no_dynamic": "launched with none",
    "copy_overrun": "run past their allocation",
    "too_much_shared": "static shared memory",
    "misaligned_load": "misaligned access of 16 bytes",
    "misaligned_copy": "isn't aligned to 16",
    "misaligned_ldmatrix": "isn't aligned to 16",
    "host_pointer": "is a host pointer",
    "wrong_direction": "host to device, but",
    "host_touches_device": "the host touched device memory",
    "own_stream": "in CUDA's own stream",
    "odd_block": "only multiples of 32",
}
# Memory is filled with NaNs, so that the result is wrong.
POISON = {"shared_not_written", "device_not_written"}
RACES = {"no_barrier", "no_second_barrier", "no_syncwarp", "shuffle_as_fence", "no_atomic",
         "barrier_for_the_grid", "copy_without_wait", "copy_without_barrier"}
STREAMS = {"kernels_unordered", "copy_unordered", "event_too_early", "no_way_back",
           "host_reads_early", "host_writes_early", "graph_unordered",
           "graphs_unordered"}
OVERRUNS = {"shared_overrun", "global_overrun", "dynamic_overrun", "use_after_free"}
MISALIGNED = {"misaligned_cast"}
# In these schedules a wrong result shows even without a sanitizer.
WRONG_IN = {
    "copy_without_wait": ("forward,eager,1",),
    "no_barrier": ("forward,eager,1", "reverse,eager,1"),
    "kernels_unordered": ("forward,lazy,1",),
    "host_reads_early": ("forward,lazy,1",),
    "host_writes_early": ("forward,lazy,1",),
}

WRONG_RESULT = 3
failures = []


def run(program, name, schedule):
    # The rank's own options stay; a report ends the program.
    env = dict(os.environ, CUSIM_SCHEDULE=schedule,
               TSAN_OPTIONS="halt_on_error=1 exitcode=66",
               ASAN_OPTIONS="detect_leaks=0 abort_on_error=0 exitcode=67",
               UBSAN_OPTIONS="halt_on_error=1 print_stacktrace=0")
    done = subprocess.run([program, name], env=env, capture_output=True, text=True,
                          errors="replace", timeout=240)
    return done.returncode, done.stdout + done.stderr


def expect(what, condition, output):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}\n{output[-3000:]}\n")


def finds(program, name, schedule, words, code=None):
    rc, output = run(program, name, schedule)
    words = (words,) if isinstance(words, str) else words
    ok = rc != 0 and any(w in output for w in words) and (code is None or rc == code)
    expect(f"{name} in {schedule}: not found ({' / '.join(words)}), exit {rc}", ok, output)


def finder(variant, name):
    """Words and exit code (None: any but 0) by which this variant finds it, or None."""
    if name in ENGINE:
        return ENGINE[name], None
    if name in POISON:
        return "wrong result", WRONG_RESULT
    if variant == "tsan" and name in RACES | STREAMS:
        return "ThreadSanitizer: data race", 66
    if variant == "asan" and name in OVERRUNS:
        return "AddressSanitizer: heap-", None
    if variant == "asan" and name in MISALIGNED:
        return "misaligned address", None
    return None


def check(variant, program, full, sample):
    names = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    known = set(ENGINE) | POISON | RACES | STREAMS | OVERRUNS | MISALIGNED
    expect(f"every fault has its finder: {set(names) ^ known}", set(names) == known, "")
    for name in names:
        found_by = finder(variant, name)
        own = variant == "tsan" and name in RACES
        all_nine = full or (name in STREAMS and not sample)
        one = SCHEDULES[names.index(name) % 9:][:1]  # under sanitizers another for each
        schedules = (SCHEDULES if all_nine else one if sample else
                     SCHEDULES[::4] if own or name in STREAMS else SCHEDULES[:1])
        for schedule in schedules if found_by else ():
            finds(program, name, schedule, *found_by)
        for schedule in WRONG_IN.get(name, ()) if variant == "plain" else ():
            finds(program, name, schedule, "wrong result", WRONG_RESULT)
    for schedule in SCHEDULES[::4] if sample and not full else SCHEDULES:
        rc, output = run(program, "right", schedule)
        expect(f"the right twins in {schedule}: exit {rc}", rc == 0, output)
        expect(f"all right twins ran in {schedule}", output.count("ran to its end: 0") == len(names),
               output)
    return len(names)


def main():
    variant, program = sys.argv[1:]
    full, sample = (os.environ.get(name, "0") not in ("", "0")
                    for name in ("TANDEM_FULL", "TANDEM_SAMPLE"))
    num = check(variant, program, full, sample)
    print(f"{num} faults, {variant}, {len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
