"""What the script `penstock` calls; it loads nothing outside of its handler of Ctrl-C.

What the commands need takes a second or two to load, and who has mistyped interrupts just then.
"""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process, and end it with the exit code."""
    try:
        from penstock.console.command_line import run_command

        code = run_command(sys.argv[1:])
    except KeyboardInterrupt:
        # Before `run_command` could hear of it, or while it told of another.
        if "--json" in sys.argv:
            print('{"error": {"type": "KeyboardInterrupt", "message": "interrupted"}}')  # noqa: T201 - no command runs
        print("error: interrupted", file=sys.stderr)  # noqa: T201 - no command runs
        code = _INTERRUPTED
    sys.exit(code)
