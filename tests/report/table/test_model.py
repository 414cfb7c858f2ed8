"""The model of a table: all formats have the same lines."""

from __future__ import annotations

from mlpfusion.report.table.model import Cell, Column, Group, Line, Table


def test_the_lines_of_a_table_are_those_of_its_groups() -> None:
    lines = [Line((Cell(str(number)),), {"n": number}) for number in range(3)]
    table = Table("t", (Column("n", "n"),), (Group((lines[0],)), Group((lines[1], lines[2]))))
    assert table.lines == tuple(lines)
