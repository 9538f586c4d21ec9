"""The journal in which tandem-node keeps what it has to say, as proto/journal.h has it."""
import struct

HEAD_BYTES, RECORD_BYTES = 32, 16


def last_report(m, reports):
    """The last WorkerUp that stands in this folder whole, or None."""
    for path in sorted(reports.glob("*.journal"), reverse=True):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # all of it was heard meanwhile
            continue
        at, last = HEAD_BYTES, None
        while at + RECORD_BYTES <= len(data):
            end = at + RECORD_BYTES + struct.unpack_from("<I", data, at)[0]
            if end > len(data):
                break
            last, at = data[at + RECORD_BYTES:end], end
        if last is not None:
            up = m.worker.WorkerUp()
            up.ParseFromString(last)
            return up
    return None


def has_end(m, reports):
    """The end of the attempt is on disk: it outlives its tandem-node, which said it in its log before."""
    up = last_report(m, reports)
    return up is not None and up.HasField("attempt_end")
