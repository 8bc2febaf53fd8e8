"""Holds a lock and then behaves like a machine whose cable was pulled: sees nothing, answers nothing."""

import ctypes
import socket
import struct
import sys

SO_ATTACH_FILTER = 26

stream = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
body = b'{"ttl_ms": 1000}'
stream.sendall(
    b"POST /locks/a/hold HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
)
seen = b""
while b"event: granted" not in seen:
    seen += stream.recv(4096)
# A packet filter with the program "return 0": the kernel drops all packets before it could
# acknowledge them.
program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
stream.setsockopt(
    socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program))
)
print("silent", flush=True)
sys.stdin.read()
