"""The hash table of compiled code: finds the entry of a map's key, or makes a new one at the end.

`machine_code` calls it where the source says `find`. Open addressing with linear probing; the table holds the numbers
of entries, counted from 1, and is never more than half full.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir

from penstock.engine.compiled.collected import CAPACITY, IS_FULL, MASK

_INTEGER: Final = ir.IntType(64)
_NAME: Final = "find"
_OF_GROUP: Final = 0x9E3779B97F4A7C15 - (1 << 64)
_OF_KEY: Final = 0x2545F4914F6CDD1D
"""Odd numbers whose products have all bits mixed (Knuth, The Art of Computer Programming 3, 6.4)."""


def find_in(module: ir.Module) -> ir.Function:
    """The function of a module: table, groups and keys of entries, counts, limits, group and key -> entry.

    It adds an entry where there is none. Where there is no room for it, it notes that and gives entry 0.
    """
    known = module.globals.get(_NAME)
    if known is not None:
        return known
    kind = ir.FunctionType(_INTEGER, [*[ir.PointerType()] * 5, _INTEGER, _INTEGER])
    function = ir.Function(module, kind, _NAME)
    function.linkage = "internal"
    table, groups, keys, counts, limits, group, key = function.args
    first, probe, taken, new, full, add, found = (function.append_basic_block() for _ in range(7))
    builder = ir.IRBuilder(first)
    mask = _at(builder, limits, MASK)
    mixed = builder.add(builder.mul(group, _int(_OF_GROUP)), builder.mul(key, _int(_OF_KEY)))
    start = builder.and_(builder.xor(mixed, builder.lshr(mixed, _int(29))), mask)
    builder.branch(probe)
    builder.position_at_end(probe)
    place = builder.phi(_INTEGER)
    slot = _at(builder, table, place)
    entry = builder.sub(slot, _int(1))
    builder.cbranch(builder.icmp_signed("==", slot, _int(0)), new, taken)
    builder.position_at_end(taken)
    is_group = builder.icmp_signed("==", _at(builder, groups, entry), group)
    is_key = builder.icmp_signed("==", _at(builder, keys, entry), key)
    further = builder.and_(builder.add(place, _int(1)), mask)
    place.add_incoming(start, first)
    place.add_incoming(further, taken)
    builder.cbranch(builder.and_(is_group, is_key), found, probe)
    builder.position_at_end(found)
    builder.ret(entry)
    builder.position_at_end(new)
    count = _at(builder, counts, 0)
    builder.cbranch(builder.icmp_signed("<", count, _at(builder, limits, CAPACITY)), add, full)
    builder.position_at_end(full)
    _put(builder, limits, IS_FULL, _int(1))
    builder.ret(_int(0))
    builder.position_at_end(add)
    _put(builder, groups, count, group)
    _put(builder, keys, count, key)
    _put(builder, table, place, builder.add(count, _int(1)))
    _put(builder, counts, 0, builder.add(count, _int(1)))
    builder.ret(count)
    return function


def _place(builder: ir.IRBuilder, array: Any, index: Any) -> Any:
    return builder.gep(array, [_int(index) if isinstance(index, int) else index], source_etype=_INTEGER)


def _at(builder: ir.IRBuilder, array: Any, index: Any) -> Any:
    return builder.load(_place(builder, array, index), typ=_INTEGER)


def _put(builder: ir.IRBuilder, array: Any, index: Any, value: Any) -> None:
    builder.store(value, _place(builder, array, index))


def _int(value: int) -> Any:
    return ir.Constant(_INTEGER, value)
