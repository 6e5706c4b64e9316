"""Walk through a CUDA kernel in Python for numba, for all threads at once."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from kerneltrace.proof.polynomial import Polynomial, polynomial
from kerneltrace.proof.symbols import Sharing
from kerneltrace.proof.walker import LOST, PRIVATE, UNKNOWN, ArrayPart, Walker

AXES = "xyz"
_SIGNED = ("int", "int32", "int64", "intp")
_UNSIGNED = ("uint32", "uint64", "uintp")
"""Types whose numbers are taken to be large enough for an index."""


class ThreadWalker(Walker):
    """A kernel of threads: `block` has the threads of a block, 0 for any number, and
    `axes` says which axes a launch uses.
    """

    def __init__(self, block: Sequence[int], axes: str) -> None:
        super().__init__()
        one = polynomial(1)
        zero = polynomial(0)
        self._places = {
            axis: {"threadIdx": zero, "blockIdx": zero, "blockDim": one, "gridDim": one}
            for axis in AXES
        }
        for axis, size in zip(axes, block, strict=False):
            self._add_axis(axis, size)

    def _add_axis(self, axis: str, size: int) -> None:
        """The places and sizes along an axis; `size` are the threads of a block, 0 for
        any number.
        """
        add = self.symbols.add
        blocks = add(f"gridDim.{axis}", Sharing.GRID, least=1)
        block = add(f"blockIdx.{axis}", Sharing.BLOCK, blocks)
        self.block_names.append(f"blockIdx.{axis}")
        self._places[axis] |= {"blockIdx": block, "gridDim": blocks}
        if size != 1:
            threads = polynomial(size)
            if not size:
                threads = add(f"blockDim.{axis}", Sharing.GRID, least=1)
            thread = add(f"threadIdx.{axis}", Sharing.THREAD, threads)
            self.thread_names.append(f"threadIdx.{axis}")
            self._places[axis] |= {"threadIdx": thread, "blockDim": threads}

    def argument(self, name: str, kind: Any) -> Any:
        """A parameter of numba's type `kind`."""
        from numba import types

        kinds: Any = types
        if isinstance(kind, kinds.Array):
            if isinstance(kind.dtype, kinds.Record):
                return LOST
            sizes = (f"{name}.shape[{axis}]" for axis in range(kind.ndim))
            shape = tuple(self.symbols.add(size, Sharing.GRID) for size in sizes)
            return ArrayPart(name, False, shape)
        if isinstance(kind, kinds.BaseTuple):
            return tuple(
                self.argument(f"{name}[{i}]", part) for i, part in enumerate(kind)
            )
        if isinstance(kind, kinds.Integer):
            least = None if kind.signed else 0
            return self.symbols.add(name, Sharing.GRID, least=least)
        return UNKNOWN

    def is_barrier(self, node: ast.AST | None) -> bool:
        """Whether an expression is one."""
        return isinstance(node, ast.Call) and self.built_in(node.func).startswith(
            "syncthreads"
        )

    def built_in(self, node: ast.expr) -> str:
        """`atomic.add` for `cuda.atomic.add`."""
        return self._scopes[-1].cuda_path(node)

    def attribute(self, node: ast.Attribute) -> Any:
        """threadIdx.x and the like, and the shape of an array."""
        owner = self.built_in(node.value)
        if owner in self._places["x"]:
            return self._places[node.attr][owner]
        path = self.built_in(node)
        if path:
            return polynomial(32) if path == "warpsize" else UNKNOWN
        return super().attribute(node)

    def called(
        self, name: str, args: list[Any], words: dict[str, Any], node: ast.Call
    ) -> Any:
        """What a function of CUDA gives; its accesses and barriers are noted."""
        if name == "shared.array":
            return self._shared_array(args, words, node)
        if name in ("local.array", "const.array_like"):
            return PRIVATE
        if name in ("grid", "gridsize"):
            return self._in_grid(name, args, node)
        if name.startswith("syncthreads"):
            self.barrier(node)
            return self.symbols.fresh("vote", Sharing.BLOCK, least=None)
        if not name.startswith("atomic."):
            return None
        if words or "swap" in name or not isinstance(args[0], ArrayPart):
            raise self.refusal(node)
        element = args[0]
        if not element.is_element:
            element = self.indexed(element, args[1])
        self.access("atomic", element, node)
        return UNKNOWN

    def converted(self, node: ast.Call, args: list[Any]) -> Any:
        """A number in another type: of integers the same one."""
        function = self._scopes[-1].resolve(node.func)
        name = str(getattr(function, "__name__", function))
        if len(args) != 1 or not isinstance(args[0], Polynomial):
            return UNKNOWN
        if name in _SIGNED or (name in _UNSIGNED and self._holds(args[0])):
            return args[0]
        return UNKNOWN

    def _in_grid(self, name: str, args: list[Any], node: ast.Call) -> Any:
        """cuda.grid or cuda.gridsize."""
        dimensions = args[0].number if isinstance(args[0], Polynomial) else None
        if dimensions not in (1, 2, 3):
            raise self.refusal(node)
        values: list[Polynomial] = []
        for place in list(self._places.values())[:dimensions]:
            if name == "gridsize":
                values.append(place["gridDim"] * place["blockDim"])
            else:
                first = place["blockIdx"] * place["blockDim"]
                values.append(first + place["threadIdx"])
        return values[0] if dimensions == 1 else tuple(values)

    def _shared_array(
        self, args: list[Any], words: dict[str, Any], node: ast.Call
    ) -> ArrayPart:
        shape = args[0] if args else words["shape"]
        sizes = shape if isinstance(shape, tuple) else (shape,)
        if not all(isinstance(size, Polynomial) and size.number for size in sizes):
            raise self.refusal(node, "shared memory of another size isn't followed")
        parts = [*node.args, *(word.value for word in node.keywords)]
        types = map(self._scopes[-1].resolve, parts)
        if any(getattr(dtype, "fields", None) for dtype in types):
            raise self.refusal(node, "an array of records isn't followed")
        target = self._target_names.get(node, f"at column {node.col_offset}")
        name = f"the shared array {target} of line {self._line(node)}"
        return ArrayPart(name, True, sizes)
