#!/usr/bin/env python3
"""plugin_real_test.py PLUGIN: the plug-in for GPUs as it was built. It asks for no driver's library,
shows nothing but its entry, loads where there is no driver, and then says so in words."""
import ctypes
import subprocess
import sys

path = sys.argv[1]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 1024)]


COUNT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(Error))


class Plugin(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_uint32), ("size", ctypes.c_uint32), ("name", ctypes.c_char_p),
                ("count", COUNT), ("open", ctypes.c_void_p), ("kernels", ctypes.c_void_p),
                ("comm", ctypes.c_void_p)]


needed = [line.split("[")[1].rstrip("]") for line in run("readelf", "-d", path).splitlines()
          if "(NEEDED)" in line]
assert any(name.startswith("libcudart.so") for name in needed), needed
assert any(name.startswith("libcublasLt.so") for name in needed), needed
assert not any(name.startswith("libcuda.so") for name in needed), needed

shown = [line.split()[-1] for line in run("nm", "-D", "--defined-only", path).splitlines()]
assert shown == ["tandem_plugin_entry"], shown

library = ctypes.CDLL(path)
library.tandem_plugin_entry.restype = ctypes.POINTER(Plugin)
plugin = library.tandem_plugin_entry().contents
assert plugin.abi == 1 and plugin.size == ctypes.sizeof(Plugin), (plugin.abi, plugin.size)
assert plugin.name.startswith(b"CUDA 1") and plugin.kernels, plugin.name

num, error = ctypes.c_int32(-1), Error()
if plugin.count(ctypes.byref(num), ctypes.byref(error)) == 0:
    print(f"{plugin.name.decode()}: {num.value} devices")
    assert num.value >= 0
else:
    print(f"{plugin.name.decode()}: {error.text.decode()}")
    assert error.code == 9 and b"driver" in error.text, error.text
