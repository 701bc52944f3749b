"""Programs of `tamp compile` as libraries that Python calls: for a GPU, or on the stand-in."""
import ctypes
import os
import pathlib
import subprocess
import time

STAND_IN = pathlib.Path(__file__).resolve().parents[2] / "runtime_stub" / "cuda_on_cpu"


def run(command):
    """-> seconds, and the most memory in GB that the program had."""
    begin, process = time.monotonic(), subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[0]}: exit {process.returncode}\n{said[-3000:]}")
    return time.monotonic() - begin, usage.ru_maxrss / 1e6


def compile_and_build(tamp, path, folder, device, *options):
    """Compiles path, and builds folder/program.so, whose functions begin with step_. -> what that took."""
    on_cpu = device == "cpu"
    compile_s, memory = run([tamp, "compile", path, "-o", folder, "--name", "step", "--vdevice", "cpu" if on_cpu else "h200", "-q", *options])
    to = ["-std=c++20", "-shared", f"-I{folder}", "-o", folder / "program.so"]
    stand_in = ["g++", "-O1", "-w", "-fPIC", "-fno-gnu-unique", "-Wl,-Bsymbolic", "-DTAMP_CUDA_ON_CPU", f"-I{STAND_IN}", *to, "-x", "c++", folder / "step.cu", "-lboost_context"]
    build_s, _ = run(stand_in if on_cpu else ["nvcc", "-O3", "-arch=sm_90a", "-w", "-Xcompiler", "-fPIC,-fno-gnu-unique", "-Xlinker", "-Bsymbolic", *to, folder / "step.cu"])
    return {"compile_s": round(compile_s, 1), "compile_gb": round(memory, 1), "build_s": round(build_s, 1)}


class Options(ctypes.Structure):  # tamp_options
    _fields_ = [("weights_path", ctypes.c_char_p), ("weights", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("wait_budget_seconds", ctypes.c_double)]


class Program:
    def __init__(self, folder):
        self.functions, self.context = ctypes.CDLL(str(folder / "program.so")), ctypes.c_void_p()
        self.functions.step_message.restype = ctypes.c_char_p
        weights = folder / "step.weights"
        self.call("create", ctypes.byref(Options(str(weights).encode() if weights.exists() else None, None, 0, 2.0)), ctypes.byref(self.context))

    def call(self, function, *arguments):
        status = getattr(self.functions, f"step_{function}")(*arguments)
        if status:
            raise RuntimeError(f"{function}: status {status}: {self.functions.step_message(self.context).decode()}")

    def run(self, inputs, outputs, stream=None):
        """Of addresses, on a stream."""
        given, made = ((ctypes.c_void_p * len(addresses))(*addresses) for addresses in (inputs, outputs))
        self.call("run", self.context, given, made, ctypes.c_void_p(stream))

    def require_good(self):
        self.call("status", self.context)

    def close(self):
        self.functions.step_destroy(self.context)
