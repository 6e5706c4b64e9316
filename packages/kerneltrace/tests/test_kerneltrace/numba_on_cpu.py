"""Functions as numba.cuda compiles them, run on the CPU: what a GPU computes with
integers, from numba's own code.
"""

import ctypes

import llvmlite.binding as llvm
import numpy as np
from numba.cuda import compiler
from numba.np.numpy_support import as_dtype

from kerneltrace.source.front_end import pretended_device

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
# the machine code that functions run, whose memory LLVM can't always give back
_kept = []


def compiled_on_cpu(function, *kinds):
    """A Python function that calls `function` as numba.cuda compiles it for numbers of
    these types; its result's type.

    The code must call nothing of CUDA's own libraries.
    """
    with pretended_device((8, 0)):
        made = compiler.compile_cuda(function, None, kinds, cc=(8, 0))
    machine = llvm.Target.from_default_triple().create_target_machine(opt=0)
    module = llvm.parse_assembly(
        made.library.get_llvm_str().replace(
            "nvptx64-nvidia-cuda", llvm.get_default_triple()
        )
    )
    module.data_layout = str(machine.target_data)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _kept.append(engine)
    result = as_dtype(made.signature.return_type)
    types = [
        np.ctypeslib.as_ctypes_type(dtype) for dtype in (result, *map(as_dtype, kinds))
    ]
    address = engine.get_function_address(made.fndesc.mangled_name)
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(types[0]), *types[1:])(address)

    def run(*values):
        out = types[0]()
        assert call(ctypes.byref(out), *values) == 0
        return out.value

    return run, result
