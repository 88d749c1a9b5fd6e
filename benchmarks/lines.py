"""Files and lines of each room of the package, now or at a revision.

    python benchmarks/lines.py
    python benchmarks/lines.py --revision HEAD~20

"code" leaves out blank lines, comments and docstrings.
"""

import argparse
import ast
import io
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "src/bayesify/"


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def sources(revision: str | None) -> dict[str, str]:
    """Path inside the package -> text."""
    if revision is None:
        return {
            str(p.relative_to(ROOT / PACKAGE)): p.read_text("utf-8") for p in (ROOT / PACKAGE).rglob("*.py")
        }
    paths = git("ls-tree", "-r", "--name-only", revision, PACKAGE).split()
    return {p.removeprefix(PACKAGE): git("show", f"{revision}:{p}") for p in paths if p.endswith(".py")}


def code_lines(text: str) -> int:
    """Lines that hold a token which is neither a comment nor part of a docstring."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    passed_over = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in passed_over and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--revision", help="of git; left out: the files as they are")
    files, lines, code = Counter[str](), Counter[str](), Counter[str]()
    for path, text in sources(parser.parse_args().revision).items():
        room = path.partition("/")[0] if "/" in path else "(top)"
        for key in (room, "all"):
            files[key] += 1
            lines[key] += text.count("\n")
            code[key] += code_lines(text)
    print(f"{'room':<14}{'files':>6}{'lines':>8}{'code':>8}")
    for room in sorted(files, key=lambda r: (r == "all", r)):
        print(f"{room:<14}{files[room]:>6}{lines[room]:>8}{code[room]:>8}")


if __name__ == "__main__":
    main()
