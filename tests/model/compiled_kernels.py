"""Compile every Triton kernel for a GPU that need not be there; run by test_triton_kernels.py.

    python compiled_kernels.py CAPABILITY

A kernel that needs more shared memory than such a GPU has fails.
"""

from __future__ import annotations

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from plait.model import triton_kernels

SHARED_KIB = {80: 163, 86: 99, 90: 227}
"""Shared memory that one program may have, by compute capability."""
TYPES = {
    **dict.fromkeys(("ids", "seed"), "*i64"),
    **dict.fromkeys(("branch", "half", "to_half", "to_branch", "qkv", "out", "to_out"), "*bf16"),
    **dict.fromkeys(("width", "num", "num_rows", "programs", "stride", "length"), "i32"),
    **dict.fromkeys(("eps", "dropout", "scale"), "fp32"),
    **{"bounds": "*i32", "to_qkv": "*bf16"},
}
"""Types of arguments by name; all others point to fp32."""
OTHERS: dict[str, dict[str, str]] = {
    "sum_columns": {"rows": "*bf16"},
    "mix_rows": {"out": "*fp32"},
}
"""Arguments that are of another type in one kernel."""
SIZES: list[tuple[str, dict[str, Any]]] = [
    ("forward", {"DROPS": True, "BLOCK": 1024}),
    *(
        ("backward", {"DROPS": True, "FULL": True, "HALF": True, "LEARNS": True, "BLOCK": 1024} | r)
        for r in ({"ROWS": 1}, {"ROWS": 4})
    ),
    ("sum_partial", {"BLOCK_ROWS": 128, "BLOCK": 32}),
    ("sum_columns", {"BLOCK_ROWS": 256, "BLOCK": 32}),
    ("add_rows", {"TOKENS": 32, "BLOCK": 128}),
    *(
        (kernel, {"DROPS": True, "HEAD": head, "SHORT": short})
        for kernel in ("attend", "attend_backward")
        for head in (16, 32, 64)
        for short in (True, False)
    ),
    *(
        (kernel, {"NUM_ROWS": num, "BLOCK": 1024})
        for kernel in ("row_products", "mix_rows")
        for num in (2, 3, 4)
    ),
]


def main() -> None:
    capability = int(sys.argv[1])
    for name, sizes in SIZES:
        kernel = getattr(triton_kernels, name)
        types = TYPES | OTHERS.get(name, {})
        given = {
            argument: "constexpr" if argument in sizes else types.get(argument, "*fp32")
            for argument in kernel.arg_names
        }
        made = triton.compile(
            ASTSource(fn=kernel, signature=given, constexprs=sizes),
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": 4 if sizes.get("SHORT", True) else 8},
        )
        shared = made.metadata.shared
        assert shared <= SHARED_KIB[capability] * 1024, (name, sizes, shared)


if __name__ == "__main__":
    main()
