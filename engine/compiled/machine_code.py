"""Makes machine code of translated functions, by LLVM, in some hundredths of a second.

The programs of functions call it. The source is what `translation` writes: assignments, `if`, `for`, `while` and
`return` over numbers and elements of arrays, each of one kind; so each expression has its LLVM type at once.
"""

from __future__ import annotations

import ast
import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
from llvmlite import ir

from penstock.engine.compiled.arithmetic import INTEGER, NUMBER, TRUTH, Arithmetic
from penstock.engine.compiled.lookup import find_in
from penstock.engine.compiled.outcomes import Outcome
from penstock.engine.compiled.translation import SIGNS

_BYTE: Final = ir.IntType(8)
_POINTER: Final = ir.PointerType()
_STORED: Final[Mapping[type[np.generic], Any]] = {
    np.int64: INTEGER,
    np.float64: NUMBER,
    np.bool_: _BYTE,
    np.int8: _BYTE,
}
_LOOP: Final = "loop"


class RowLoop:
    """A function of row `i` as machine code, which runs over the rows from 0 on.

    Args:
        source: its statements; `return True` ends the row, `return False` the run, for want of room.
        numbers: names of the ints that it takes, each the same for all rows.
        arrays: names of its arrays, each with the type of the elements.

    Example:
        >>> double = RowLoop("b[i] = add(a[i], a[i])", (), {"a": np.int64, "b": np.int64})
        >>> given, made = np.arange(3), np.empty(3, np.int64)
        >>> double(3, (), (given, made)).name, made.tolist()
        ('DONE', [0, 2, 4])
    """

    def __init__(self, source: str, numbers: Sequence[str], arrays: Mapping[str, type[np.generic]]) -> None:
        module = ir.Module("penstock")
        parameters = [INTEGER, *(INTEGER for _ in numbers), *(_POINTER for _ in arrays)]
        function = ir.Function(module, ir.FunctionType(INTEGER, parameters), _LOOP)
        rows, *given = function.args
        named = dict(zip([*numbers, *arrays], given, strict=True))
        for name in arrays:
            named[name].add_attribute("noalias")
        _write_loop(function, rows, _Writer.create(function, named, arrays), ast.parse(source).body)
        # The engine owns the code that the address leads to.
        self._engine = _compile(module)
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int64, *(ctypes.c_int64 for _ in numbers), *(ctypes.c_void_p for _ in range(len(arrays) + 1))
        )
        self._call: Callable[..., int] = kind(self._engine.get_function_address(_LOOP))

    def __call__(self, rows: int, numbers: Sequence[int], arrays: Sequence[npt.NDArray[Any]]) -> Outcome:
        """Run over so many rows."""
        return Outcome(self._call(rows, *numbers, *(array.ctypes.data for array in arrays)))


@functools.lru_cache(maxsize=256)
def row_loop(source: str, numbers: tuple[str, ...], arrays: tuple[tuple[str, type[np.generic]], ...]) -> RowLoop:
    """As `RowLoop`, which has no state: the subtasks of a process that run the same code share it."""
    return RowLoop(source, numbers, dict(arrays))


def _write_loop(function: ir.Function, rows: Any, writer: _Writer, body: Sequence[ast.stmt]) -> None:
    """Count `i` from 0 to `rows` around the body."""
    builder, first = writer.builder, writer.builder.block
    head, row, behind = (function.append_basic_block(name) for name in ("head", "row", "behind"))
    builder.position_at_end(head)
    at = builder.phi(INTEGER, "i")
    at.add_incoming(ir.Constant(INTEGER, 0), first)
    builder.cbranch(builder.icmp_signed("<", at, rows), row, behind)
    builder.position_at_end(behind)
    builder.ret(ir.Constant(INTEGER, Outcome.DONE.value))
    builder.position_at_end(row)
    writer.values["i"] = at
    writer.block(body)
    writer.end_row()
    builder.position_at_end(writer.row_end)
    at.add_incoming(builder.add(at, ir.Constant(INTEGER, 1)), writer.row_end)
    builder.branch(head)
    # Variables are all known now.
    builder.position_at_end(first)
    builder.branch(head)


def _compile(module: ir.Module) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(parsed, passes)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine


@dataclass
class _Writer:
    """Writes the instructions of statements; `values` are the numbers and arrays, `variables` places in memory."""

    builder: ir.IRBuilder
    arithmetic: Arithmetic
    values: dict[str, Any]
    arrays: Mapping[str, type[np.generic]]
    row_end: ir.Block
    no_room: ir.Block
    variables: dict[str, Any] = field(default_factory=dict)
    loops: list[tuple[ir.Block, ir.Block]] = field(default_factory=list)

    @staticmethod
    def create(function: ir.Function, values: dict[str, Any], arrays: Mapping[str, type[np.generic]]) -> _Writer:
        first, row_end = function.append_basic_block("first"), function.append_basic_block("row_end")
        ends = {}
        for outcome in (Outcome.NO_ROOM, Outcome.NO_RESULT):
            ends[outcome] = function.append_basic_block(outcome.name.lower())
            ir.IRBuilder(ends[outcome]).ret(ir.Constant(INTEGER, outcome.value))
        builder = ir.IRBuilder(first)
        arithmetic = Arithmetic(builder, ends[Outcome.NO_RESULT])
        return _Writer(builder, arithmetic, values, arrays, row_end, ends[Outcome.NO_ROOM])

    # Statements

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            self._statement(statement)

    def end_row(self) -> None:
        if not self.builder.block.is_terminated:
            self.builder.branch(self.row_end)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assign(name, self._value(value))
            case ast.Assign(targets=[ast.Subscript() as place], value=value):
                pointer, stored = self._place(place)
                self.builder.store(self._as_stored(self._value(value), stored), pointer)
            case ast.Return(value=ast.Constant(value=has_room)):
                self.builder.branch(self.row_end if has_room else self.no_room)
            case ast.If(test=test, body=body, orelse=other):
                self._if(test, body, other)
            case ast.While(test=test, body=body):
                self._loop(lambda: self._value(test), lambda: self.block(body), lambda: None)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=bounds), body=body):
                self._for(name, [self._value(bound) for bound in bounds], body)
            case ast.Break():
                self.builder.branch(self.loops[-1][1])
            case ast.Continue():
                self.builder.branch(self.loops[-1][0])
            case ast.Pass():
                pass
            case _:
                raise AssertionError(ast.unparse(node))

    def _assign(self, name: str, value: Any) -> None:
        if name not in self.variables:
            self.variables[name] = self._allocated(value.type)
        self.builder.store(value, self.variables[name])

    def _allocated(self, kind: ir.Type) -> Any:
        with self.builder.goto_block(self.builder.function.entry_basic_block):
            return self.builder.alloca(kind)

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> None:
        builder = self.builder
        then, otherwise, behind = (builder.append_basic_block() for _ in range(3))
        builder.cbranch(self._value(test), then, otherwise)
        for block, statements in ((then, body), (otherwise, other)):
            builder.position_at_end(block)
            self.block(statements)
            if not builder.block.is_terminated:
                builder.branch(behind)
        builder.position_at_end(behind)

    def _for(self, name: str, bounds: Sequence[Any], body: Sequence[ast.stmt]) -> None:
        start, stop = bounds if len(bounds) == 2 else (ir.Constant(INTEGER, 0), bounds[0])
        # The rounds are counted apart from the variable, which the body may assign and inner loops may share.
        round_number = self._allocated(INTEGER)
        self.builder.store(start, round_number)

        def load() -> Any:
            return self.builder.load(round_number, typ=INTEGER)

        def enter() -> None:
            self._assign(name, load())
            self.block(body)

        def step() -> None:
            self.builder.store(self.builder.add(load(), ir.Constant(INTEGER, 1)), round_number)

        self._loop(lambda: self.builder.icmp_signed("<", load(), stop), enter, step)

    def _loop(self, test: Callable[[], Any], body: Callable[[], None], step: Callable[[], None]) -> None:
        builder = self.builder
        head, inside, further, behind = (builder.append_basic_block() for _ in range(4))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(test(), inside, behind)
        builder.position_at_end(inside)
        self.loops.append((further, behind))
        body()
        self.loops.pop()
        if not builder.block.is_terminated:
            builder.branch(further)
        builder.position_at_end(further)
        step()
        builder.branch(head)
        builder.position_at_end(behind)

    # Expressions

    def _value(self, node: ast.expr) -> Any:
        builder = self.builder
        match node:
            case ast.Constant(value=bool() as truth):
                return ir.Constant(TRUTH, int(truth))
            case ast.Constant(value=int() as number):
                return ir.Constant(INTEGER, number)
            case ast.Constant(value=float() as number):
                return ir.Constant(NUMBER, number)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
                return ir.Constant(INTEGER, -number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return builder.fneg(self._value(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return builder.not_(self._value(operand))
            case ast.Name(id=name) if name in self.variables:
                return builder.load(self.variables[name], typ=self.variables[name].allocated_type)
            case ast.Name(id=name):
                return self.values[name]
            case ast.Subscript():
                pointer, stored = self._place(node)
                return self._as_value(builder.load(pointer, typ=_STORED[stored]), stored)
            case ast.BoolOp(op=operator, values=[first, *others]):
                return self._bool(operator, first, others)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._choice(self._value(test), lambda: self._value(body), lambda: self._value(other))
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return self._comparison(self._value(left), SIGNS[type(operator)], self._value(right))
            case ast.BinOp(left=left, op=operator, right=right):
                return self._operation(operator, self._value(left), self._value(right))
            case ast.Call(func=ast.Name(id="absolute"), args=[value]):
                return self.arithmetic.absolute(self._value(value))
            case ast.Call(func=ast.Name(id="abs"), args=[value]):
                return builder.call(_fabs(builder), [self._value(value)])
            case ast.Call(func=ast.Name(id="find"), args=arguments):
                return builder.call(find_in(builder.module), [self._value(argument) for argument in arguments])
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return getattr(self.arithmetic, name)(*(self._value(argument) for argument in arguments))
        raise AssertionError(ast.unparse(node))

    def _place(self, node: ast.Subscript) -> tuple[Any, type[np.generic]]:
        assert isinstance(node.value, ast.Name)
        stored = self.arrays[node.value.id]
        index = [self._value(node.slice)]
        return self.builder.gep(self.values[node.value.id], index, source_etype=_STORED[stored]), stored

    def _as_value(self, loaded: Any, stored: type[np.generic]) -> Any:
        return self.builder.trunc(loaded, TRUTH) if stored is np.bool_ else loaded

    def _as_stored(self, value: Any, stored: type[np.generic]) -> Any:
        if stored is np.bool_:
            return self.builder.zext(value, _BYTE)
        return self.builder.trunc(value, _BYTE) if stored is np.int8 else value

    def _bool(self, operator: ast.boolop, first: ast.expr, others: Sequence[ast.expr]) -> Any:
        """What stands behind is computed only where it decides, as it may fail."""
        if not others:
            return self._value(first)

        def rest() -> Any:
            return self._bool(operator, others[0], others[1:])

        if isinstance(operator, ast.And):
            return self._choice(self._value(first), rest, lambda: ir.Constant(TRUTH, 0))
        return self._choice(self._value(first), lambda: ir.Constant(TRUTH, 1), rest)

    def _choice(self, test: Any, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        builder = self.builder
        then, otherwise, behind = (builder.append_basic_block() for _ in range(3))
        builder.cbranch(test, then, otherwise)
        results = []
        for block, compute in ((then, one), (otherwise, other)):
            builder.position_at_end(block)
            results.append((compute(), builder.block))
            builder.branch(behind)
        builder.position_at_end(behind)
        chosen = builder.phi(results[0][0].type)
        for value, block in results:
            chosen.add_incoming(value, block)
        return chosen

    def _comparison(self, left: Any, sign: str, right: Any) -> Any:
        if left.type != NUMBER:
            return self.builder.icmp_signed(sign, left, right)
        # Of what is not a number only `!=` is true.
        compare = self.builder.fcmp_unordered if sign == "!=" else self.builder.fcmp_ordered
        return compare(sign, left, right)

    def _operation(self, operator: ast.operator, left: Any, right: Any) -> Any:
        builder, is_float = self.builder, left.type == NUMBER
        match operator:
            case ast.Add():
                return builder.fadd(left, right) if is_float else builder.add(left, right)
            case ast.Sub():
                return builder.fsub(left, right)
            case ast.Mult():
                return builder.fmul(left, right)
            case ast.Div():
                return self.arithmetic.divide(left, right)
            case ast.BitAnd():
                return builder.and_(left, right)
            case ast.BitOr():
                return builder.or_(left, right)
            case ast.BitXor():
                return builder.xor(left, right)
        raise AssertionError(ast.dump(operator))


def _fabs(builder: ir.IRBuilder) -> Any:
    return builder.module.declare_intrinsic("llvm.fabs", [NUMBER])
