"""Plain Python functions that a compiled program calls by name: XLA's call frames, read by ctypes.

A program that holds a Python callback holds an address of this process, so JAX keeps it in no
cache. A call by name has no address in it: the program is compiled once and serves every later
process. XLA hands such a call one pointer to a frame; the layouts below are those of
`xla/ffi/api/c_api.h`, version 0.1, which later versions only add to.

A call comes once per step of the environments, so reading it must take a few microseconds: pointers
are followed in one large array, and the numpy array of an address, type and shape is made once. A
program calls with the same few addresses over and over.
"""

import ctypes
import math
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

VERSION = 0, 1
# Places in a structure, in words of 8 bytes
_EXTENSION, _API, _COUNT, _GIVEN, _RESULTS = 1, 2, 7, 9, 14  # of a frame
_KIND, _SHAPE = 2, 5  # of a buffer: from one to the other type, address, rank and dimensions
_QUESTION, _METADATA = 1, 3  # of an extension: its kind, and where its answer goes
_ERROR_CREATE = 6  # of XLA's table of functions
_VERSION_AT = 24  # bytes into the metadata: major version, minor version and traits, 4 bytes each
_INTERNAL = 13  # the code of an error

_KINDS = {
    1: np.bool_, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.uint8, 7: np.uint16,
    8: np.uint32, 9: np.uint64, 10: np.float16, 11: np.float32, 12: np.float64,
}  # fmt: skip

Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_known = threading.local()  # of a thread: whether Python keeps its state
# All of a process's memory as words: the quickest way to follow a pointer in Python
_words: Any = (ctypes.c_uint64 * 2**44).from_address(0)


def handler(function: Callable[..., np.ndarray]) -> Any:
    """A function of arrays as one that XLA can call: it fills the only result of the call.

    It reads and writes the program's own memory, so the function must not keep what it is given.
    An exception becomes the error of the whole program. Whoever registers the handler has to keep
    it alive.
    """

    def handle(address: int) -> int | None:
        _keep_thread()
        frame = _at(address, _RESULTS + 1)
        if frame[_EXTENSION] and _answered(frame[_EXTENSION]):
            return None
        try:
            result = _arrays(_at(frame[_RESULTS], 1))[0]
            result[...] = function(*_arrays(_at(frame[_GIVEN], frame[_COUNT])))
        except BaseException as error:  # beyond this function there is no Python to raise it in
            return _failed(frame[_API], f"{type(error).__name__}: {error}")
        return None

    return Handler(handle)


def _keep_thread() -> None:
    """Have Python remember this thread of XLA's after the call.

    It knows a foreign thread only while that runs Python: each call would set up a new state, whose
    stack is new memory from the operating system. That took 40 microseconds on top of the 190 in
    which sixteen CartPoles make a step. A thread that is entered once more than it is left keeps
    its state until it ends.
    """
    if not hasattr(_known, "thread"):
        _known.thread = True
        ctypes.pythonapi.PyGILState_Ensure()


def _at(address: int, count: int) -> list[int]:
    """So many words of memory."""
    start = address >> 3
    return _words[start : start + count]


def _arrays(buffers: list[int]) -> list[np.ndarray]:
    """The numbers that these structures describe."""
    words, arrays = _words, []
    for buffer in buffers:  # without a function for each: it would take as long as the rest
        start = buffer >> 3
        kind, data, rank, shape = words[start + _KIND : start + _SHAPE + 1]
        first = shape >> 3
        # The type of the numbers is in the lower half of its word
        arrays.append(_view(data, kind & 0xFFFF, *words[first : first + rank]))
    return arrays


@lru_cache(maxsize=4096)
def _view(address: int, kind: int, *shape: int) -> np.ndarray:
    """The numbers at an address. It is only looked at in a call that names the address itself."""
    dtype = np.dtype(_KINDS[kind])
    size = dtype.itemsize * math.prod(shape)
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, memory)


def _answered(extension: int) -> bool:
    """Whether this call only asked which version the handler is written for, which it now says."""
    words = _at(extension, _METADATA + 1)
    if words[1] & 0xFFFF != _QUESTION:
        return False
    (ctypes.c_int32 * 3).from_address(words[_METADATA] + _VERSION_AT)[:] = (*VERSION, 0)
    return True


class _Failure(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )


def _failed(api: int, message: str) -> int:
    """An error for XLA, which copies the message and frees the error."""
    create = Handler(_at(api, _ERROR_CREATE + 1)[_ERROR_CREATE])
    failure = _Failure(ctypes.sizeof(_Failure), None, message.encode(), _INTERNAL)
    return create(ctypes.addressof(failure))
