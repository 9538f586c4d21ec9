"""A run of real ranks (helpers/held_rank.c) that is held still where a test wants to disturb it: on a
quick machine, or beside a slow test, it would have ended by then."""
from bench_of_programs import wait_for


def hold(*moments):
    """Tags: for each "A.S", attempt A is held behind step S, until it is let go or told to stop; for
    "A.+S" it is held S steps after those that it goes on from."""
    return [f"hold={moment}" for moment in moments]


def wait_held(server, job, moment):
    """All up to this step has been said to tandem-node, and no more will be."""
    wait_for(f"job {job} to be held at {moment}", lambda: is_held(server, job, moment))


def is_held(server, job, moment):
    return (server.data / f"jobs/{job}/held-{moment}").exists()


def let_go(server, job, moment):
    (server.data / f"jobs/{job}/go-{moment}").touch()
