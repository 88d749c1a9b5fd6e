"""`where` as text, the way its repr writes it: "~norm", "linear & ~output", "matching('head')"."""

import ast
import re

from bayesify.names import lookup
from bayesify.weights import where
from bayesify.weights.where import Where

_WORDS = ("all", "norm", "input", "output", "linear", "conv")
LONGEST = 500  # characters of a text
MOST_REPEATS = 4  # in a pattern: a search takes the length of a name to this power
NAMES: dict[str, Where] = {name: getattr(where, name) for name in _WORDS}


def parse_where(text: str) -> Where:
    """The choice of parameters that `text` describes.

    >>> parse_where("norm | ~(linear & output)")
    (norm | ~(linear & output))
    """
    try:
        if len(text) > LONGEST:
            raise SyntaxError
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueError(
            f"where={text!r} cannot be read; write for example 'output', '~norm', 'linear & ~output' or "
            f"\"matching('head')\""
        ) from None
    return _build(tree, text)


def _build(node: ast.expr, text: str) -> Where:
    if isinstance(node, ast.Name):
        return lookup(NAMES, node.id, "where")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return ~_build(node.operand, text)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd):
        left, right = _build(node.left, text), _build(node.right, text)
        return left | right if isinstance(node.op, ast.BitOr) else left & right
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "matching":
        arguments = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if len(arguments) == 1 and not node.keywords:
            check_quick(arguments[0])
            return where.matching(arguments[0])
    raise ValueError(
        f"where={text!r} cannot be read: it is made of {', '.join(NAMES)} and matching('…'), "
        f"joined by | & ~ and parentheses"
    )


def check_quick(pattern: str) -> None:
    """Raise where a search by the pattern might not end: it may come from a file of somebody else's.

    Such patterns repeat a group that has repeats or alternatives in it, (a+)+ or (a|a)*, or have many repeats.
    """
    inside, repeats = [False], 0  # of each open group: can it match one text in several ways?
    # sets and escaped characters are one character
    plain = re.sub(r"\\.|\[\^?\]?(\\.|[^\]])*\]", "x", pattern)
    for i, letter in enumerate(plain):
        repeated = letter not in "(*+?{" and plain[i + 1 : i + 2] in ("*", "+", "?", "{")
        if letter == "(":
            inside.append(False)
        elif letter == ")" and len(inside) > 1:
            several = inside.pop()
            if several and repeated:
                repeats = MOST_REPEATS
            inside[-1] |= several or repeated
        elif letter == "|" or repeated:
            inside[-1] = True
        repeats += repeated
    if repeats > MOST_REPEATS:
        raise ValueError(
            f"where.matching: {pattern!r} may take for ever: leave out repeats of groups that repeat, and use at "
            f"most {MOST_REPEATS} repeats"
        )
