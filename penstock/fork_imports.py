"""What the fork server of an embedded cluster loads: all that the processes forked from it may need, once for all."""

from penstock.warm_imports import LATER, load_while

load_while(lambda: True, LATER)
