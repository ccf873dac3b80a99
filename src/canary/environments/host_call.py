"""A Python function that compiled programs call by name, so that JAX can cache the programs.

JAX does not cache programs with `jax.pure_callback`, which contain the address of a Python object.
`jax.ffi` calls a C function, here a ctypes callback, by its registered name. The structures are
those of XLA's public header `xla/ffi/api/c_api.h` (in `jax.ffi.include_dir()`), version 0.1, which
later versions only extend.
"""

import ctypes
import math
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

VERSION = 0, 1
METADATA = 1  # type of the extension with which XLA asks for the version of a handler
INTERNAL = 13  # error code
DTYPES = {11: np.dtype(np.float32), 12: np.dtype(np.float64)}
HEAD = ("struct_size", c_size_t), ("extension_start", c_void_p)
INTEGERS = POINTER(c_int64)


class ApiVersion(ctypes.Structure):
    _fields_ = (*HEAD, ("major", c_int), ("minor", c_int))


class Metadata(ctypes.Structure):
    _fields_ = (HEAD[0], ("version", ApiVersion), ("traits", ctypes.c_uint32))


class MetadataExtension(ctypes.Structure):
    _fields_ = (HEAD[0], ("type", c_int), ("next", c_void_p), ("metadata", POINTER(Metadata)))


class Buffer(ctypes.Structure):
    _fields_ = (*HEAD, ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", INTEGERS))


class Buffers(ctypes.Structure):
    _fields_ = (*HEAD, ("size", c_int64), ("types", c_void_p), ("all", POINTER(POINTER(Buffer))))


class ErrorArguments(ctypes.Structure):
    _fields_ = (*HEAD, ("message", ctypes.c_char_p), ("code", c_int))


CreateError = CFUNCTYPE(c_void_p, POINTER(ErrorArguments))


class Api(ctypes.Structure):
    _fields_ = (*HEAD, ("version", ApiVersion), ("own", c_void_p), ("create_error", CreateError))


class CallFrame(ctypes.Structure):
    _fields_ = (
        *HEAD,
        ("api", POINTER(Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("arguments", Buffers),
        ("results", Buffers),
    )


Handler = CFUNCTYPE(c_void_p, POINTER(CallFrame))


class HostFunction:
    """A function from a batch of rows to a batch of rows, which must not keep its argument. Nested
    `vmap`s become one call. An exception becomes an error of the program."""

    def __init__(self, name: str, function: Callable[[np.ndarray], np.ndarray]):
        self._name, self._function = name, function
        self._handler = Handler(self._handle)  # keeps it alive: XLA has only its address
        jax.ffi.register_ffi_target(
            name, jax.ffi.pycapsule(self._handler), platform="cpu", api_version=1
        )

    def __call__(self, result: jax.ShapeDtypeStruct, row: Array) -> Array:
        """The result for one row, inside a program."""
        return jax.ffi.ffi_call(self._name, result, vmap_method="broadcast_all")(row)

    def _handle(self, pointer: Any) -> int | None:
        frame = pointer.contents
        try:
            if frame.extension_start and _answer_version(frame.extension_start):
                return None
            rows, result = (
                _array(each.all[0].contents) for each in (frame.arguments, frame.results)
            )
            result[...] = self._function(rows)
        except BaseException as error:  # there is no Python frame above this one
            message = f"{type(error).__name__}: {error}".encode()
            given = ErrorArguments(ctypes.sizeof(ErrorArguments), None, message, INTERNAL)
            return frame.api.contents.create_error(ctypes.byref(given))
        return None


def _array(buffer: Buffer) -> np.ndarray:
    """The memory of a buffer as an array, without a copy."""
    shape, dtype = buffer.dims[: buffer.rank], DTYPES[buffer.dtype]
    size = math.prod(shape) * dtype.itemsize
    memory: Any = (ctypes.c_char * size).from_address(buffer.data) if size else b""
    return np.frombuffer(memory, dtype).reshape(shape)


def _answer_version(address: int) -> bool:
    """Whether XLA asked only for the handler's version, which is then answered."""
    extension = MetadataExtension.from_address(address)
    if extension.type != METADATA:
        return False
    version = extension.metadata.contents.version
    version.major, version.minor = VERSION
    return True
