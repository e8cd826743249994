"""What numba compiles to read cells. Separators are found 64 characters at a time, and eight digits become a number at once."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.extending import intrinsic

from hpcddp.analysis.records.csv_reader import EMPTY, SHORT

LINE_END, COMMA = 10, 44
ABOVE_SEPARATORS, ABOVE_DIGITS = ord("0"), ord("9") + 1
"""Of what the worker writes, separators are below the one, digits below the other."""

WORD, BYTE, INDEX = ir.IntType(64), ir.IntType(8), ir.IntType(32)
BYTES = ir.VectorType(BYTE, 64)

SIGNATURE = "int64(uint8[::1], int64, int64, int64[:,::1], int64[::1])"


def compile_parse() -> Any:
    """`parse`, from numba's own cache beside this file (or where NUMBA_CACHE_DIR says) if it is there and can be read."""
    try:
        return numba.njit(SIGNATURE, nogil=True, cache=True)(parse)
    except Exception:  # no folder to write to, a full disk, a damaged cache: whatever it is, compiling needs none
        return numba.njit(SIGNATURE, nogil=True)(parse)


def parse(data: Any, at: int, end: int, out: Any, bits: Any) -> int:  # noqa: PLR0912  with fewer it takes a sixth longer
    """See csv_reader.compiled. Up to 64 bytes before and after are looked at; the latter are below ABOVE_DIGITS."""
    columns, rows = out.shape
    cells, down = out.reshape(-1), np.uint64(rows)
    begin, row, column, place = at, 0, 0, np.uint64(0)
    for block in range(at, end, 64):
        stops, ends = below(data, block, ABOVE_SEPARATORS), same(data, block, LINE_END)
        if end - block < 64:
            stops &= (ONE << np.uint64(end - block)) - ONE
            ends &= stops
        if below(data, block, ABOVE_DIGITS) != ALL or stops & ~(ends | same(data, block, COMMA)):
            return -1
        while stops != 0:
            stop = block + lowest(stops)
            width = stop - begin
            if width <= 8:
                if width != 0:
                    value = np.int64(number(word(data, stop - 8), width))
                else:
                    value = np.int64(EMPTY)
                    bits[np.uint64(column)] |= value
            else:
                value = np.int64(long_number(data, stop, width))
                if width > SHORT:
                    if width > 19 or value < 0:  # beyond int64
                        return -1
                    bits[np.uint64(column)] |= value
            cells[place] = value
            begin = stop + 1
            ended = (ends >> np.uint64(stop - block)) & ONE
            stops &= stops - ONE
            column += 1
            place += down
            if column < columns:
                if ended != 0:
                    return -1
            else:
                if ended == 0:
                    return -1
                column, row = 0, row + 1
                place = np.uint64(row)
                if row == rows:
                    return row if begin == end else -1
    return -1


ALL, ONE = np.uint64(2**64 - 1), np.uint64(1)


def _long_number(data: Any, stop: int, width: int) -> Any:
    """Of 9 to 19 digits before `stop`."""
    low = number(word(data, stop - 8), 8)
    if width <= 16:
        return low + number(word(data, stop - 16), width - 8) * np.uint64(10**8)
    middle, high = number(word(data, stop - 16), 8), number(word(data, stop - 24), width - 16)
    return low + middle * np.uint64(10**8) + high * np.uint64(10**16)


def _number(x: Any, width: int) -> Any:
    """That the last so many of eight characters are: joined two by two, four by four, eight by eight."""
    x &= np.uint64(0x0F0F0F0F0F0F0F0F) << np.uint64(64 - 8 * width)
    x = (x * np.uint64(2561)) >> np.uint64(8)
    x = ((x & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    return ((x & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)


number = numba.njit(_number)
long_number = numba.njit(_long_number)


def _compared(how: str) -> Any:
    """A bit for each of 64 bytes from `at` on: whether it is so to the given one."""

    def typed(_: Any, data: Any, at: Any, byte: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            one = builder.insert_element(ir.Constant(BYTES, ir.Undefined), builder.trunc(args[2], BYTE), ir.Constant(INDEX, 0))
            all_ = builder.shuffle_vector(one, ir.Constant(BYTES, ir.Undefined), ir.Constant(ir.VectorType(INDEX, 64), [0] * 64))
            return builder.bitcast(builder.icmp_unsigned(how, _load(context, builder, signature, args, BYTES), all_), WORD)

        return numba.uint64(data, at, numba.int64), code

    return intrinsic(typed)


def _word(_: Any, data: Any, at: Any) -> Any:
    """Eight bytes, the first the lowest."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(context, builder, signature, args, WORD)

    return numba.uint64(data, at), code


def _load(context: Any, builder: Any, signature: Any, args: Any, kind: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.load(builder.bitcast(builder.gep(data, [args[1]]), kind.as_pointer()), align=1)


def _lowest(_: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; one is."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return numba.int64(bits), code


below, same = _compared("<"), _compared("==")
word: Any = intrinsic(_word)
lowest: Any = intrinsic(_lowest)
