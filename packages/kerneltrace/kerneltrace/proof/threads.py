"""Walk through a CUDA kernel in Python for numba, for all threads at once."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Sequence
from typing import Any

from kerneltrace.proof.polynomial import Polynomial, polynomial
from kerneltrace.proof.symbols import Sharing
from kerneltrace.proof.walker import (
    LOST,
    MAX_DEPTH,
    PRIVATE,
    UNKNOWN,
    ArrayPart,
    Walker,
    parsed,
)
from kerneltrace.source.kernel_scope import KernelScope

AXES = "xyz"
_INTEGERS = {"int", "int32", "int64", "intp", "uint32", "uint64", "uintp"}
"""Types whose numbers are taken to be large enough for an index."""


class ThreadWalker(Walker):
    """A kernel of threads: `block` has the threads of a block, 0 for any number, and
    `axes` says which axes a launch uses.
    """

    def __init__(self, block: Sequence[int], axes: str) -> None:
        super().__init__()
        self._dynamic = ""
        """The type of dynamic shared memory."""
        self.thread_names: list[str] = []
        self.block_names: list[str] = []
        self._places = {
            axis: self._axis(axis, axis in axes, size)
            for axis, size in zip(AXES, block, strict=True)
        }

    def _axis(self, axis: str, is_used: bool, size: int) -> dict[str, Polynomial]:
        """The places and sizes along an axis; `size` are the threads of a block, 0 for
        any number.
        """
        one = polynomial(1)
        zero = polynomial(0)
        place = {"threadIdx": zero, "blockIdx": zero, "blockDim": one, "gridDim": one}
        add = self.symbols.add
        if is_used:
            blocks = add(f"gridDim.{axis}", Sharing.GRID, least=1)
            block = add(f"blockIdx.{axis}", Sharing.BLOCK)
            self.symbols.hold(block, blocks - 1 - block)
            self.block_names.append(f"blockIdx.{axis}")
            place |= {"blockIdx": block, "gridDim": blocks}
        if is_used and size != 1:
            threads = polynomial(size)
            if not size:
                threads = add(f"blockDim.{axis}", Sharing.GRID, least=1)
            thread = add(f"threadIdx.{axis}", Sharing.THREAD)
            self.symbols.hold(thread, threads - 1 - thread)
            self.thread_names.append(f"threadIdx.{axis}")
            place |= {"threadIdx": thread, "blockDim": threads}
        return place

    def argument(self, name: str, kind: Any) -> Any:
        """A parameter of numba's type `kind`."""
        import numba

        types: Any = numba.types
        if isinstance(kind, types.Array) and isinstance(kind.dtype, types.Record):
            return LOST
        if isinstance(kind, types.Array):
            shape = tuple(
                self.symbols.add(f"{name}.shape[{axis}]", Sharing.GRID)
                for axis in range(kind.ndim)
            )
            return ArrayPart(name, False, kind.ndim, shape)
        if isinstance(kind, types.BaseTuple):
            return tuple(
                self.argument(f"{name}[{i}]", part) for i, part in enumerate(kind)
            )
        if isinstance(kind, types.Integer):
            least = None if kind.signed else 0
            return self.symbols.add(name, Sharing.GRID, least=least)
        return UNKNOWN

    def has_barrier(self, nodes: Sequence[ast.AST]) -> bool:
        """Whether statements may come to a barrier."""
        return any(
            isinstance(node, ast.Call) and self._syncs(node)
            for part in nodes
            for node in ast.walk(part)
        )

    def _syncs(self, call: ast.Call) -> bool:
        scope = self._scopes[-1]
        if scope.cuda_path(call.func).startswith("syncthreads"):
            return True
        function = scope.device_function(call.func)
        return function is not None and self._may_sync(function)

    def _may_sync(self, function: Any) -> bool:
        tree, _ = parsed(function)
        self._scopes.append(KernelScope(function, tree))
        syncs = len(self._scopes) > MAX_DEPTH or self.has_barrier(tree.body)
        self._scopes.pop()
        return syncs

    def is_barrier(self, node: ast.AST) -> bool:
        """Whether a statement is one."""
        value = getattr(node, "value", None)
        return isinstance(value, ast.Call) and self._scopes[-1].cuda_path(
            value.func
        ).startswith("syncthreads")

    def attribute(self, node: ast.Attribute) -> Any:
        """threadIdx.x and the like, and the shape of an array."""
        owner = self._scopes[-1].cuda_path(node.value)
        if owner in self._places["x"]:
            return self._places[node.attr][owner]
        path = self._scopes[-1].cuda_path(node)
        if path:
            return polynomial(32) if path == "warpsize" else UNKNOWN
        if isinstance(node.value, ast.Name) and isinstance(
            self._names.get(node.value.id), ArrayPart
        ):
            memory = self._names[node.value.id]
            shape = memory.shape[len(memory.index) :]
            if node.attr == "shape":
                return shape
            if node.attr == "size":
                return math.prod(shape, start=polynomial(1))
            if node.attr == "ndim":
                return polynomial(len(shape))
        return super().attribute(node)

    def call(self, node: ast.Call) -> Any:
        """What a call gives; its accesses and barriers are noted."""
        scope = self._scopes[-1]
        path = scope.cuda_path(node.func)
        if path == "shared.array":
            return self._shared_array(node)
        if path == "local.array":
            return PRIVATE
        if path == "const.array_like":
            return UNKNOWN
        args = [self.value(arg) for arg in node.args]
        keywords = {str(word.arg): self.value(word.value) for word in node.keywords}
        if path in ("grid", "gridsize"):
            return self._in_grid(path, args, node)
        if path.startswith("atomic."):
            return self._atomic(args, keywords, node)
        if path.startswith("syncthreads"):
            self.barrier(node)
            return self.symbols.fresh("vote", Sharing.BLOCK, least=None)
        function = None if path else scope.device_function(node.func)
        if function:
            bound = inspect.signature(function).bind(*args, **keywords)
            return self.walk(function, dict(bound.arguments))
        if any(
            isinstance(arg, ArrayPart) or arg is LOST
            for arg in [*args, *keywords.values()]
        ):
            if scope.resolve(node.func) is len:
                return args[0].shape[len(args[0].index)]
            raise self._refuse(node, f"{ast.unparse(node.func)} isn't followed")
        return self._computed(scope.resolve(node.func), args)

    def _computed(self, function: Any, args: list[Any]) -> Any:
        """What a function of numbers gives."""
        if not args or not all(isinstance(arg, Polynomial) for arg in args):
            return UNKNOWN
        name = str(getattr(function, "__name__", function))
        if function in (min, max):
            kind = "least" if function is min else "greatest"
            return self.symbols.extreme(kind, args)
        is_type = name in _INTEGERS and len(args) == 1
        if is_type and (name[0] == "i" or self._holds(args[0])):
            return args[0]
        return UNKNOWN

    def _in_grid(self, path: str, args: list[Any], node: ast.Call) -> Any:
        """cuda.grid or cuda.gridsize."""
        dimensions = args[0].number if isinstance(args[0], Polynomial) else None
        if dimensions not in (1, 2, 3):
            raise self._refuse(node, "the number of dimensions isn't known")
        values = []
        for axis in AXES[:dimensions]:
            place = self._places[axis]
            value = place["blockIdx"] * place["blockDim"] + place["threadIdx"]
            if path == "gridsize":
                value = place["gridDim"] * place["blockDim"]
            values.append(value)
        return values[0] if dimensions == 1 else tuple(values)

    def _shared_array(self, node: ast.Call) -> ArrayPart:
        words = {word.arg: word.value for word in node.keywords}
        shape = self.value(node.args[0] if node.args else words["shape"])
        parts = shape if isinstance(shape, tuple) else (shape,)
        sizes = tuple(
            part
            if isinstance(part, Polynomial) and part.number != 0
            else self.symbols.fresh("size", Sharing.GRID)
            for part in parts
        )
        is_dynamic = any(size.number is None for size in sizes)
        dtype = node.args[1] if len(node.args) > 1 else words["dtype"]
        if getattr(self._scopes[-1].resolve(dtype), "fields", None):
            raise self._refuse(node, "an array of records isn't followed")
        name = f"the shared array of line {self._line(node)}:{node.col_offset}"
        if is_dynamic:
            name = "dynamic shared memory"  # all such arrays are the same memory
            self._dynamic = self._dynamic or ast.unparse(dtype)
            if self._dynamic != ast.unparse(dtype) or len(sizes) > 1:
                raise self._refuse(node, "dynamic shared memory of two types")
        return ArrayPart(name, True, len(sizes), sizes)

    def _atomic(self, args: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        if keywords or not args or not isinstance(args[0], ArrayPart):
            raise self._refuse(node, "the array of this atomic isn't known")
        element = args[0]
        if len(element.index) < element.dimensions:
            element = self.indexed(element, args[1], node)
        self.access("atomic", element, node)
        return UNKNOWN
