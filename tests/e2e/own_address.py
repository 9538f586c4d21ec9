"""An address for a server of this process, host:port."""
import os
import socket


def own_address():
    """It stays free while the server is away: of loopback's addresses one of this process's own, where
    no connection of others begins, and no other test listens."""
    pid = os.getpid()
    host = f"127.{64 + (pid >> 16) % 64}.{pid >> 8 & 255}.{pid & 255}"
    with socket.socket() as s:
        s.bind((host, 0))
        return f"{host}:{s.getsockname()[1]}"
