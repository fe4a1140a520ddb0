#!/usr/bin/env python3
"""Fails where modules of a crate depend on each other in a circle, and names the files that cause it.

Usage: scripts/module-cycles.py CRATE_FOLDER...

It checks sibling modules: those of a crate, and those of each module below it. A module depends on another if
code in its files names a path in the other's (`use crate::…`, `super::…`). A module and the modules inside it
count as one for their siblings, so a module may use what is inside it and the other way round. Tests are not
checked. It also fails on `use …::*` of the crate's own modules, because that hides which names are used.
"""

import pathlib
import re
import sys

# Comments, raw strings, strings and characters, whichever begins first.
NO_CODE = re.compile(
    r"""//[^\n]*|b?r(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\[^\n]+?|[^'\\\n])'""", re.DOTALL
)
# A module in a file of its own that only tests have.
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\(\w+\))? )?mod (\w+);")
PATH = re.compile(r"\b(crate|super|self)((?:::\w+)*)(?:::\{)?")


def module_of(source, file):
    """Returns the names of the modules to a file, from the crate's root."""
    names = list(file.relative_to(source).with_suffix("").parts)
    return tuple(names[:-1] if names[-1] in ("mod", "lib", "main") else names)


def without_tests(text):
    """Returns the code of a file without tests, comments and strings."""
    text = re.sub(r"#\[cfg\(test\)\]\s*(?:pub(?:\(\w+\))? )?mod \w+ \{.*", "", text, flags=re.DOTALL)
    return NO_CODE.sub('""', text)


def paths(text):
    """Yields each path that begins at the crate, this module or one above it; braces are unfolded one level at
    a time."""
    for found in PATH.finditer(text):
        base = [found[1], *[name for name in found[2].split("::") if name]]
        if found[0].endswith("::{"):
            yield from unfold(base, text, found.end())
        else:
            yield base


def unfold(base, text, at):
    """Yields the paths in the braces that were opened just before `at`."""
    depth, item, items = 0, "", []
    for letter in text[at:]:
        if letter == "}" and depth == 0:
            break
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            items.append(item)
            item = ""
        else:
            item += letter
    for part in [*items, item]:
        head, brace, _ = part.strip().partition("{")
        names = [name for name in re.split(r"::|\s+as\s+\w+", head) if name]
        if brace:
            yield from unfold([*base, *names], part, part.index("{") + 1)
        elif names:
            yield [*base, *names]


def files_and_modules(source):
    """Returns the files of a crate without its tests, and the modules in them."""
    all_files = sorted(source.rglob("*.rs"))
    declared = {
        (*module_of(source, file), name) for file in all_files for name in TEST_MODULE.findall(file.read_text())
    }

    def is_test(names):
        return "tests" in names or any(names[:depth] in declared for depth in range(1, len(names) + 1))

    files = [file for file in all_files if not is_test(module_of(source, file))]
    return files, {module_of(source, file)[:depth] for file in files for depth in range(len(file.parts))}


def globs(source):
    """Returns the files in which `use …::*` takes all names of a module of the crate."""
    files, modules = files_and_modules(source)

    def is_own(here, names):
        return names[-1] == "*" and (names[0] in ("crate", "super", "self") or (*here, names[0]) in modules)

    return [
        str(file.relative_to(source.parent))
        for file in files
        for text in re.findall(r"\buse ([^;]+);", without_tests(file.read_text()))
        if any(is_own(module_of(source, file), names) for names in unfold([], text + "}", 0))
    ]


def needs(source):
    """Returns which sibling modules need which others, with the files that cause it."""
    files, modules = files_and_modules(source)
    # Names that a module re-exports from a module inside it: `pub use child::Name`.
    lent = {}
    for file in files:
        here = module_of(source, file)
        for text in re.findall(r"^(?:pub(?:\([^)]*\))? )?use ([^;]+);", without_tests(file.read_text()), re.MULTILINE):
            for names in unfold([], text + "}", 0):
                names = names[1:] if names[0] == "self" else names
                if (*here, names[0]) in modules and len(names) > 1:
                    lent[(*here, names[-1])] = (*here, *names)
    found = {}
    for file in files:
        here = module_of(source, file)
        for base, *names in paths(without_tests(file.read_text())):
            at = {"crate": (), "self": here, "super": here[:-1]}[base]
            while names and names[0] in ("super", "self"):
                at = at[:-1] if names.pop(0) == "super" else at
            there = (*at, *names)
            for depth in range(len(there), 0, -1):
                if there[:depth] in lent:
                    there = lent[there[:depth]] + there[depth:]
                    break
            common = 0
            while common < min(len(here), len(there)) and here[common] == there[common]:
                common += 1
            # A module and one inside it are not siblings.
            if common < len(here) and there[: common + 1] in modules and common < len(there):
                edge = found.setdefault((here[: common + 1], there[: common + 1]), set())
                edge.add(str(file.relative_to(source.parent)))
    return found


def circles(edges):
    """Returns the sets of modules that need each other (Tarjan's strongly connected components)."""
    graph = {}
    for one, other in edges:
        graph.setdefault(one, set()).add(other)
        graph.setdefault(other, set())
    index, low, stack, done = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(circle) > 1:
                done.append(circle)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return done


def main():
    bad = False
    for crate in map(pathlib.Path, sys.argv[1:]):
        for file in globs(crate / "src"):
            bad = True
            print(f"{crate}: {file} uses all names of a module (`*`); name those that it needs")
        edges = needs(crate / "src")
        for circle in circles(edges):
            bad = True
            print(f"{crate}: {', '.join('::'.join(module) for module in sorted(circle))} need each other:")
            for (one, other), files in sorted(edges.items()):
                if one in circle and other in circle:
                    print(f"    {'::'.join(one)} -> {'::'.join(other)}: {', '.join(sorted(files))}")
    sys.exit(bad)


if __name__ == "__main__":
    main()
