"""What a training script tells its launcher, and asks it: progress, stops, the fence of its checkpoints (docs/libddp.md).

A job finds this module, and libddp.so through it, without an installation. Outside of a job every call works too: a world of one,
and nobody hears of progress. A call that fails raises Error, whose `status` is ddp.h's, as "DDP_CONFLICT"."""
import ctypes
import glob
import os

_HERE = os.path.dirname(os.path.abspath(__file__))
_BESIDE = [os.environ.get("DDP_LIBRARY", ""), _HERE + "/../libddp.so.0", *glob.glob(_HERE + "/../../../lib*/libddp.so.0"),
           *glob.glob(_HERE + "/../../../lib*/*/libddp.so.0")]
_lib = ctypes.CDLL(next((path for path in _BESIDE if os.path.exists(path)), "libddp.so.0"))
_lib.ddp_status_name.restype = ctypes.c_char_p
_U32, _U64, _DOUBLE = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double
NO_LIMIT = -1.0


class _Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("code", ctypes.c_int), ("text", ctypes.c_char * 256)]


class Place(ctypes.Structure):  # struct ddp_place
    _fields_ = [*((name, _U32) for name in ("rank", "world", "local_rank", "local_world", "node_rank", "node_count", "generation",
                                            "restart_count")),
                ("job_id", _U64), ("checkpoint_step", _U64), ("has_launcher", ctypes.c_int),
                *((name, ctypes.c_char * 64) for name in ("node", "address", "cluster"))]


class _Progress(ctypes.Structure):
    _fields_ = [("epoch", _U32), ("epochs", _U32), ("step", _U64), ("steps", _U64), ("loss", _DOUBLE), ("samples_per_s", _DOUBLE),
                ("is_urgent", ctypes.c_int), ("phase", ctypes.c_int), ("timed_steps", _U32),
                *((name, _DOUBLE) for name in ("step_s", "data_s", "compute_s", "update_s", "wait_s")),
                ("collectives", _U64), ("in_collective", ctypes.c_int), ("again_s", _DOUBLE), ("doing", ctypes.c_char_p)]


class Error(RuntimeError):
    status = None


_handle = None


def _open():
    global _handle
    if _handle is None:
        handle, error = ctypes.c_void_p(), _Error()
        _check(_lib.ddp_open(ctypes.byref(handle), ctypes.byref(error)), error)
        _handle = handle
    return _handle


def _check(status, error):
    if status:
        failure = Error(error.text.decode(errors="replace"))
        failure.status = _lib.ddp_status_name(status).decode()
        raise failure


def _call(name, *args):
    error = _Error()
    _check(getattr(_lib, name)(_open(), *args, ctypes.byref(error)), error)


def _path(name):
    return None if name is None else os.fsencode(name)


def place():
    """rank, world, generation, checkpoint_step and so on; texts are bytes."""
    _lib.ddp_get_place.restype = ctypes.POINTER(Place)
    return _lib.ddp_get_place(_open()).contents


PHASES = ("steps", "preparing", "validating", "saving", "ending")


def report(step, steps=0, epoch=0, epochs=0, loss=float("nan"), samples_per_s=0.0, phase="steps", step_s=0.0, data_s=0.0,
           compute_s=0.0, update_s=0.0, wait_s=0.0, doing=""):
    """Never waits. False: the launcher is gone, and this process with it soon.

    `phase`, one of PHASES: say it before what has no steps, so that it is not taken for a hang. `step_s`: how long this step
    took, and of that it waited for data, computed, updated weights, waited for other ranks: a slow rank is found by them."""
    progress = _Progress(epoch, epochs, step, steps, loss, samples_per_s, 0, PHASES.index(phase), int(step_s > 0), step_s, data_s,
                         compute_s, update_s, wait_s, 0, 0, 0.0, doing.encode(errors="replace").replace(b"\0", b"?"))
    return not _lib.ddp_report(_open(), ctypes.byref(progress), None)


def catch_signals():
    """From here on SIGTERM only makes should_stop() true, and SIGUSR1 should_checkpoint()."""
    _call("ddp_catch_signals")


def should_stop():
    """Not 0: save and end."""
    return _lib.ddp_should_stop(_open(), None)


def time_left():
    """Seconds until this process is killed; None where that is not known, or nothing has asked for its end."""
    left = _DOUBLE()
    _lib.ddp_should_stop(_open(), ctypes.byref(left))
    return left.value if left.value >= 0 else None


def should_checkpoint(interval_s=0.0):
    return bool(_lib.ddp_should_checkpoint(_open(), _DOUBLE(interval_s)))


def any_rank(mine, limit_s=NO_LIMIT):
    """All ranks: whether `mine` is true on one of them."""
    found = ctypes.c_int()
    _call("ddp_any", int(bool(mine)), ctypes.byref(found), _DOUBLE(limit_s))
    return bool(found.value)


def barrier(limit_s=NO_LIMIT):
    _call("ddp_barrier", _DOUBLE(limit_s))


def fence(folder):
    """Makes this process the owner of the folder, against older generations of the job."""
    _call("ddp_fence", _path(folder))


def check_fence():
    _call("ddp_check_fence")


def commit(step, temporary=None, final=None):
    """Renames `temporary` to `final`, both names under the folder of fence(), unless a newer generation owns it."""
    _call("ddp_commit", _U64(step), _path(temporary), _path(final))


def committed(step):
    """Never waits, and fails for nothing but what report() says."""
    _lib.ddp_committed(_open(), _U64(step), None)


def fail(text):
    """The error that ends this process, for `ddpctl why`."""
    _lib.ddp_fail(_open(), text.encode(errors="replace").replace(b"\0", b"?"), None)


def leave():
    global _handle
    if _handle is not None:
        _lib.ddp_leave(ctypes.byref(_handle))
        _handle = None
