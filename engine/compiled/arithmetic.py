"""Arithmetic of compiled functions as LLVM instructions: Python's result, or a way out where 64 bits do not hold it.

`machine_code` calls it. The way out leaves the batch to the plain function, so that a check may object too early.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir

INTEGER: Final = ir.IntType(64)
NUMBER: Final = ir.DoubleType()
TRUTH: Final = ir.IntType(1)
_EXACT: Final = 2**53
"""Up to here each int is a float."""
_SMALLEST: Final = -(2**63)


class Arithmetic:
    """Writes instructions behind those of a builder.

    Args:
        builder: stands where the instructions are to be.
        way_out: the block that is reached where there is no result.
    """

    def __init__(self, builder: ir.IRBuilder, way_out: ir.Block) -> None:
        self._builder = builder
        self._way_out = way_out

    def given(self, is_given: Any, value: Any) -> Any:
        """The value of a column, where there is one."""
        self._unless(self._builder.not_(is_given))
        return value

    def within(self, value: Any, low: Any, high: Any) -> Any:
        """An int that a column of fewer bits is to hold."""
        self._unless(self._builder.icmp_signed("<", value, low))
        self._unless(self._builder.icmp_signed(">", value, high))
        return value

    def place(self, first: Any, count: Any, index: Any) -> Any:
        """Where the value of an index lies, of so many that begin at `first`; from the end where it is negative."""
        builder = self._builder
        is_behind = builder.icmp_signed("<", index, _integer(0))
        found = builder.select(is_behind, builder.add(index, count), index)
        self._unless(builder.icmp_signed("<", found, _integer(0)))
        self._unless(builder.icmp_signed(">=", found, count))
        return builder.add(first, found)

    def add(self, left: Any, right: Any) -> Any:
        return self._checked(self._builder.sadd_with_overflow(left, right))

    def subtract(self, left: Any, right: Any) -> Any:
        return self._checked(self._builder.ssub_with_overflow(left, right))

    def multiply(self, left: Any, right: Any) -> Any:
        return self._checked(self._builder.smul_with_overflow(left, right))

    def negate(self, value: Any) -> Any:
        return self.subtract(_integer(0), value)

    def absolute(self, value: Any) -> Any:
        is_negative = self._builder.icmp_signed("<", value, _integer(0))
        return self._builder.select(is_negative, self.negate(value), value)

    def floor_divide(self, left: Any, right: Any) -> Any:
        _, is_off = self._rest(left, right)
        quotient = self._builder.sdiv(left, right)
        return self._builder.select(is_off, self._builder.sub(quotient, _integer(1)), quotient)

    def modulo(self, left: Any, right: Any) -> Any:
        rest, is_off = self._rest(left, right)
        return self._builder.select(is_off, self._builder.add(rest, right), rest)

    def divide(self, left: Any, right: Any) -> Any:
        self._unless(self._builder.fcmp_ordered("==", right, ir.Constant(NUMBER, 0.0)))
        return self._builder.fdiv(left, right)

    def smaller(self, left: Any, right: Any) -> Any:
        return self._builder.select(self._is_less(right, left), right, left)

    def larger(self, left: Any, right: Any) -> Any:
        return self._builder.select(self._is_less(left, right), right, left)

    def to_float(self, value: Any) -> Any:
        self._unless(self._builder.icmp_signed(">", value, _integer(_EXACT)))
        self._unless(self._builder.icmp_signed("<", value, _integer(-_EXACT)))
        return self._builder.sitofp(value, NUMBER)

    def to_int(self, value: Any) -> Any:
        # What is not a number is on no side of these.
        self._unless(self._builder.fcmp_unordered(">=", value, ir.Constant(NUMBER, 2.0**63)))
        self._unless(self._builder.fcmp_unordered("<=", value, ir.Constant(NUMBER, -(2.0**63))))
        return self._builder.fptosi(value, INTEGER)

    def _is_less(self, left: Any, right: Any) -> Any:
        """Of two that are equal or cannot be compared, Python's `min` and `max` give the first."""
        compare = self._builder.fcmp_ordered if left.type == NUMBER else self._builder.icmp_signed
        return compare("<", left, right)

    def _rest(self, left: Any, right: Any) -> tuple[Any, Any]:
        """The rest of a division towards zero, and whether Python's, which rounds down, is another."""
        builder = self._builder
        self._unless(builder.icmp_signed("==", right, _integer(0)))
        self._unless(builder.icmp_signed("==", left, _integer(_SMALLEST)))
        rest = builder.srem(left, right)
        is_other_side = builder.icmp_signed("<", builder.xor(rest, right), _integer(0))
        return rest, builder.and_(builder.icmp_signed("!=", rest, _integer(0)), is_other_side)

    def _checked(self, result: Any) -> Any:
        self._unless(self._builder.extract_value(result, 1))
        return self._builder.extract_value(result, 0)

    def _unless(self, condition: Any) -> None:
        ahead = self._builder.append_basic_block()
        self._builder.cbranch(condition, self._way_out, ahead)
        self._builder.position_at_end(ahead)


def _integer(value: int) -> Any:
    return ir.Constant(INTEGER, value)
