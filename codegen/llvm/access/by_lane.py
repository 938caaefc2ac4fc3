"""Emit gathers and scatters of narrow elements: a function for each type that takes the active lanes in turn.

No x86 processor gathers or scatters elements of fewer than four bytes. LLVM writes such a vector's accesses out lane by lane,
those under a mask with a branch each: 64 lanes of a byte in an unrolled tile become thousands of blocks, on which its
register allocator spends minutes.
"""

from __future__ import annotations

from polyker.codegen.llvm.text import IRBuilder, Reg, suffix

# Least lanes of a masked narrow vector that is accessed lane by lane, and most: the bits of a mask in one register.
_MIN_MASK_LANES, _MAX_MASK_LANES = 8, 64
_NARROW = ("i8", "i16")


def is_narrow(element: str, lanes: int) -> bool:
    """Return whether a vector of this element type in memory should be gathered and scattered by these functions."""
    return element in _NARROW and _MIN_MASK_LANES <= lanes <= _MAX_MASK_LANES


def gather(b: IRBuilder, pointers: Reg, mask: Reg, element: str) -> str:
    """Return the call whose result is one element a lane, zero where the mask is off."""
    vector = Reg("", element, pointers.lanes, 0)
    symbol = f"gather.{suffix(vector)}"
    take = f"""  %to = getelementptr {element}, ptr %found, i64 %lane
  %value = load {element}, ptr %address, align 1
  store {element} %value, ptr %to"""
    parameters = f"{pointers.type} %pointers, i{mask.lanes} %mask"
    b.definitions[symbol] = f"""define internal {vector.type} @{symbol}({parameters}) noinline #0 {{
entry:
  %addresses = alloca {pointers.type}, align 64
  %found = alloca {vector.type}, align 64
  store {pointers.type} %pointers, ptr %addresses, align 64
  store {vector.type} zeroinitializer, ptr %found, align 64
{_loop(mask.lanes, take)}
  %result = load {vector.type}, ptr %found, align 64
  ret {vector.type} %result
}}"""
    return f"call {vector.type} @{symbol}({pointers.typed}, {_bits(b, mask).typed})"


def scatter(b: IRBuilder, pointers: Reg, value: Reg, mask: Reg) -> str:
    """Return the call that stores one element a lane, in the order of the lanes."""
    symbol = f"scatter.{suffix(value)}"
    put = f"""  %from = getelementptr {value.elem}, ptr %values, i64 %lane
  %one = load {value.elem}, ptr %from
  store {value.elem} %one, ptr %address, align 1"""
    parameters = f"{value.type} %value, {pointers.type} %pointers, i{mask.lanes} %mask"
    b.definitions[symbol] = f"""define internal void @{symbol}({parameters}) noinline #0 {{
entry:
  %addresses = alloca {pointers.type}, align 64
  %values = alloca {value.type}, align 64
  store {pointers.type} %pointers, ptr %addresses, align 64
  store {value.type} %value, ptr %values, align 64
{_loop(mask.lanes, put)}
  ret void
}}"""
    return f"call void @{symbol}({value.typed}, {pointers.typed}, {_bits(b, mask).typed})"


def _bits(b: IRBuilder, mask: Reg) -> Reg:
    """Return a mask as an integer, lane 0 its lowest bit."""
    kind = f"i{mask.lanes}"
    b.declare(f"llvm.cttz.{kind}", f"declare {kind} @llvm.cttz.{kind}({kind}, i1 immarg)")
    if mask.text == "splat (i1 true)":
        return Reg("-1", kind, 1, 0)
    return b.pure(f"bitcast {mask.typed} to {kind}", kind, 1, (mask,))


def _loop(lanes: int, access: str) -> str:
    """Return a loop over the bits that are set in `%mask`: `access` is given `%lane` and the lane's `%address`."""
    bits = f"i{lanes}"
    number = f"zext {bits} %first to i64" if lanes < 64 else f"add {bits} %first, 0"
    return f"""  %some = icmp ne {bits} %mask, 0
  br i1 %some, label %loop, label %done
loop:
  %left = phi {bits} [ %mask, %entry ], [ %rest, %loop ]
  %first = call {bits} @llvm.cttz.{bits}({bits} %left, i1 true)
  %lane = {number}
  %at = getelementptr ptr, ptr %addresses, i64 %lane
  %address = load ptr, ptr %at
{access}
  %less = add {bits} %left, -1
  %rest = and {bits} %left, %less
  %more = icmp ne {bits} %rest, 0
  br i1 %more, label %loop, label %done, !llvm.loop !1
done:"""
