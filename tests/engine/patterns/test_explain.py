"""The picture of a pattern: what each arrow means, and that no text of a condition breaks its notation."""

from __future__ import annotations

from penstock import Pattern, col


def test_arrows_say_what_takes_skips_and_proceeds() -> None:
    pattern = Pattern.begin("a").next("b").where(col("v") == 2).one_or_more().followed_by("c")
    lines = [line.strip() for line in pattern.diagram().splitlines()]
    assert lines[0] == "flowchart LR"
    assert 's5(["a (start)"])' in lines
    for arrow in (
        's5 -->|"takes a"| s4',
        's2 -.->|"skips if not col(v) == 2"| s3',
        's2 ==>|"proceeds"| s1',
        's1 -->|"takes c"| match',
    ):
        assert arrow in lines
    assert not [line for line in lines if line.startswith("match -")], "nothing leaves a match"


def test_conditions_cannot_break_the_notation() -> None:
    drawn = Pattern.begin("a").where(col("x") == '"|<b>;#`\n').diagram()
    assert "'#quot;|#lt;b#gt;#59;#35;#96;" in drawn
    assert all(line.count('"') in (0, 2) for line in drawn.splitlines())


def test_what_waits_for_a_first_event_is_not_shown_to_be_stopped() -> None:
    left_out = Pattern.begin("a").where(col("x") == 1).optional()
    text = Pattern.begin(left_out).not_next("n").where(col("x") == 2).next("c").within("5s").explain()
    assert "    proceeds if col(x) == 2, once a match has begun -> stop" in text
    begun = Pattern.begin("a").not_next("n").where(col("x") == 2).next("c").within("5s")
    assert "    proceeds if col(x) == 2 -> stop" in begun.explain()
    assert "once a match has begun" not in begun.diagram()
