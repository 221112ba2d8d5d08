"""NumPy, and PyTorch if it is installed, use tensors of the library without a copy, and it theirs:
dlpack_test.py LIBRARY, where LIBRARY is module.cpp.  Skipped without NumPy."""

import ctypes
import sys

try:
    import numpy
except ImportError:
    print("skipped: there is no NumPy")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

library = ctypes.CDLL(sys.argv[1])
library.lend.restype = ctypes.c_void_p
library.lend.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
library.take_over.restype = ctypes.c_char_p
library.take_over.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_double)]
library.live.restype = library.external.restype = ctypes.c_size_t
python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]

# Capsules have the name's address.
NAME, USED = b"dltensor", b"used_dltensor"


class Lent:
    """A tensor of the library, as other libraries expect it."""

    def __init__(self, type, rows, columns):
        self.tensor = library.lend(type.encode(), rows, columns)

    def __dlpack__(self, **_):
        return python.PyCapsule_New(self.tensor, NAME, None)

    def __dlpack_device__(self):
        return 1, 0


def take_over(array):
    """The sum of the array's values as the library sees them; raises ValueError with its sentence."""
    capsule = array.__dlpack__()
    total = ctypes.c_double()
    error = library.take_over(python.PyCapsule_GetPointer(capsule, NAME), ctypes.byref(total))
    if error:
        raise ValueError(error.decode())
    python.PyCapsule_SetName(capsule, USED)
    return total.value


def refused(array, *words):
    try:
        take_over(array)
    except ValueError as e:
        assert all(word in str(e) for word in words), e
    else:
        raise AssertionError(f"{words}: was taken over")


def lends(from_dlpack, types):
    for type, unit in types.items():
        array = from_dlpack(Lent(type, 3, 5))
        assert tuple(array.shape) == (3, 5), array.shape
        assert [float(x) for row in array for x in row] == [unit * i for i in range(15)], type
        assert library.live() > 0
        del array
        assert library.live() == 0, type


integers = {"i32": 1, "i8": 1}
floating = {"f64": 0.5, "f32": 0.5, "f16": 0.5}
lends(numpy.from_dlpack, {**integers, **floating, "u16": 1})
for dtype in ["float64", "float32", "float16", "int32", "int8", "uint16"]:
    assert take_over(numpy.arange(15).astype(dtype).reshape(3, 5)) == 105, dtype
    assert take_over(numpy.arange(15).astype(dtype)[5:]) == 95, dtype
refused(numpy.ones((3, 5), "float32").T, "(5, 3)", "ascontiguousarray")
refused(numpy.ones(3, "int64"), "int64", "convert")
refused(numpy.ones((1, 1, 1, 1, 1), "float32"), "5 dimensions")
tried = ["NumPy"]

if torch:
    lends(torch.from_dlpack, {**integers, **floating, "bf16": 0.5})
    for dtype in [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int8]:
        assert take_over(torch.arange(15).to(dtype).reshape(3, 5)) == 105, dtype
    refused(torch.ones(3, 5).T, "contiguous()")
    tried.append("PyTorch")

assert library.live() == 0 and library.external() == 0
print(f"tensors go to {' and '.join(tried)} and back without a copy")
