"""The worker process: `python -m canary.host.worker` reads requests from standard input until it
ends.

The first line is JSON: the recipe and where to look for modules. Then come requests, each answered
by a reply:

    request   operation (r, s)   rows n   slots int32[n]   seeds uint32[n] or actions float32[n, a]
    reply     0   values   float32[values]      or      1   row   length   UTF-8 text
"""

import json
import os
import signal
import struct
import sys
from typing import Any, BinaryIO

import numpy as np

from canary.host.player import Recipe
from canary.host.stage import LocalStage, SlotFailed

REQUEST = struct.Struct("<ciiI")  # operation, rows, numbers per row, unused
REPLY = struct.Struct("<BII")


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """So many bytes, or EOFError."""
    data = stream.read(size)
    if data is None or len(data) < size:
        raise EOFError
    return data


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    order = json.loads(requests.readline())
    sys.path[:] = order["path"]
    os.chdir(order["directory"])
    stage = LocalStage(Recipe(order["make"], order["arguments"], order["cost"], order["horizon"]))
    try:
        while True:
            operation, rows, width, _ = REQUEST.unpack(read_exactly(requests, REQUEST.size))
            slots = np.frombuffer(read_exactly(requests, 4 * rows), np.int32)
            body = read_exactly(requests, 4 * rows * width)
            try:
                result = _do(stage, operation, slots, body)
                values = np.ascontiguousarray(result, np.float32)
                replies.write(REPLY.pack(0, values.size, 0) + values.tobytes())
            except SlotFailed as failure:
                text = failure.reason.encode()
                replies.write(REPLY.pack(1, failure.row, len(text)) + text)
            replies.flush()
    except (EOFError, BrokenPipeError):
        pass
    finally:
        stage.close()


def _do(stage: LocalStage, operation: bytes, slots: np.ndarray, body: bytes) -> Any:
    where = slots.tolist()
    if operation == b"r":
        return stage.reset(where, np.frombuffer(body, np.uint32).tolist())
    return stage.step(where, np.frombuffer(body, np.float32).reshape(len(where), -1))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which closes the pipe
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an environment prints must not mix with the replies
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
