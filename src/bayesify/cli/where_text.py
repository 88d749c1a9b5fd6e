"""`where` as text, the way its repr writes it: "~norm", "linear & ~output", "matching('head')"."""

import ast

from bayesify.names import LONGEST, check_quick, lookup
from bayesify.weights import where
from bayesify.weights.where import Where

_WORDS = ("all", "norm", "input", "output", "linear", "conv")
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
