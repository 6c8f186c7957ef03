"""An interpreter that can not start in its threads: a lock of stdout is held at exit by a daemon thread."""
import ctypes

ctypes.pythonapi.Py_FatalError.argtypes = [ctypes.c_char_p]
ctypes.pythonapi.Py_FatalError(b"_PyEval_ReleaseThread: the GIL is not held by this thread")
