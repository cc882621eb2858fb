"""The interpreter inside of the sandbox: reads calls, runs them in one namespace, says when each has ended.

Its text is put into the sandbox; nothing imports it. What a call prints goes to the output; that a call has ended is
told on another line (descriptor 5), with the number of the call, so that nothing printed can be taken for it.
"""

import ast
import base64
import linecache
import os
import sys
import traceback


def run(code, name, names):
    linecache.cache[name] = (len(code), None, [line + "\n" for line in code.split("\n")], name)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), names)
        if value is not None:
            print(repr(value))


def main():
    names = {"__name__": "__main__", "__builtins__": __builtins__}
    with os.fdopen(6, encoding="ascii") as asked, os.fdopen(5, "w", encoding="ascii") as told:
        for count, line in enumerate(asked, 1):
            number, _, code = line.strip().partition(" ")
            try:
                run(base64.b64decode(code).decode(), f"<call {count}>", names)
            except SystemExit:
                raise
            except BaseException as e:
                inner = e.__traceback__
                while inner is not None and not inner.tb_frame.f_code.co_filename.startswith("<call "):
                    inner = inner.tb_next
                traceback.print_exception(type(e), e, inner, limit=-8, file=sys.stdout)
            sys.stdout.flush()
            sys.stderr.flush()
            told.write(number + "\n")
            told.flush()


if __name__ == "__main__":
    main()
