"""HTTP/2 by hand, for what no client would send: frames, header blocks without compression, and raw
connections to the controller's socket file."""
import select
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags=0, stream=0, payload=b"", length=None):
    length = len(payload) if length is None else length
    return struct.pack(">I", length)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(value):
    """A string without Huffman coding, its length as an integer with a prefix of seven bits."""
    n = len(value)
    if n < 127:
        return bytes([n]) + value
    out = b"\x7f"
    n -= 127
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n]) + value


def header(name, value):
    return b"\x00" + text(name) + text(value)


def request_headers(path, *extra):
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path),
              (b":authority", b"x"), (b"content-type", b"application/grpc"), (b"te", b"trailers"),
              *extra]
    return b"".join(header(*f) for f in fields)


def message(payload, length=None, flag=0):
    return struct.pack(">BI", flag, len(payload) if length is None else length) + payload


def greeting():
    return PREFACE + frame(SETTINGS)


def greeting_of_a_wide_window():
    """Of one that lets its peer send as much as a connection can say."""
    most = (1 << 31) - 1
    return (PREFACE + frame(SETTINGS, payload=struct.pack(">HI", 4, most)) +
            frame(WINDOW_UPDATE, payload=struct.pack(">I", most - 65535)))


def connect(path, timeout=10):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(timeout)
    while True:
        try:
            s.connect(str(path))
            break
        except BlockingIOError:  # the queue of the listener is full for the moment
            time.sleep(0.002)
    return s


def send(path, data, read=True):
    """Sends all, as far as the peer takes it, and drops what comes back until the peer hangs up or
    is quiet for a moment. True: it hung up."""
    s = connect(path)
    try:
        s.setblocking(False)
        view = memoryview(data)
        while len(view):
            readable, writable, _ = select.select([s], [s], [], 10)
            if readable and not s.recv(1 << 16):
                return True
            if writable:
                view = view[s.send(view[:1 << 16]):]
            if not readable and not writable:
                return False
        s.settimeout(0.3)
        while read:
            if not s.recv(1 << 16):
                return True
        return False
    except TimeoutError:
        return False
    except OSError:
        return True
    finally:
        s.close()
