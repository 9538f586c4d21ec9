"""The journal in which tandem-node keeps what it has to say, as proto/journal.h has it."""
import struct

HEAD_BYTES, RECORD_BYTES = 32, 16


def bodies(data):
    """(begin, end) of the WorkerUps that stand in a file's data whole."""
    found, at = [], HEAD_BYTES
    while at + RECORD_BYTES <= len(data):
        end = at + RECORD_BYTES + struct.unpack_from("<I", data, at)[0]
        if end > len(data):
            break
        found.append((at + RECORD_BYTES, end))
        at = end
    return found


def last_report(m, reports):
    """The last WorkerUp that stands in this folder whole, or None."""
    for path in sorted(reports.glob("*.journal"), reverse=True):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # all of it was heard meanwhile
            continue
        whole = bodies(data)
        if whole:
            up = m.worker.WorkerUp()
            up.ParseFromString(data[slice(*whole[-1])])
            return up
    return None


def has_end(m, reports):
    """The end of the attempt is on disk: it outlives its tandem-node, which said it in its log before."""
    up = last_report(m, reports)
    return up is not None and up.HasField("attempt_end")
