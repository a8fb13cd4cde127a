#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""make_man.py DIR VERSION DATE < (output of kernel-doc -man over one source file)

Writes DIR/NAME.9 for each function of tests/functions.txt that the input documents. kernel-doc knows what the
comment says; how a page looks is decided here: its title, a synopsis one can read, paragraphs and lists, SEE ALSO.
"""

import os
import re
import sys

NEIGHBOURS = 4  # functions of the same file that SEE ALSO lists beside those that the text mentions


def inline(text):
    """One line of text: literals become bold, stray backslashes and leading control characters harmless."""
    text = re.sub(r"\\(?!f[BIPR]|&|-)", r"\\e", text)
    text = re.sub(r"``([^`]+)``", r"\\fB\1\\fP", text)
    text = re.sub(r"(?<![\w\\])-(?=\w)", r"\\-", text)
    return "\\&" + text if text.startswith(("'", ".")) else text


def body(lines, item_indent=None):
    """Paragraphs, lists and literal blocks; inside an .IP item, item_indent is its width."""
    paragraph = ".PP" if item_indent is None else ".IP"
    out, gap, literal, literal_next = [], False, False, False
    for line in lines:
        if not line.strip():
            if literal:
                out += [".fi", ".RE"]
                literal = False
            gap = True
            continue
        bullet = re.match(r"(?:[-*]|(\d+[.)]))\s+(.*)", line)
        if literal_next and gap:
            out += [paragraph, ".RS 4", ".nf"]
            literal, literal_next = True, False
        elif literal:
            pass
        elif bullet:
            out.append('.IP "%s" 4' % bullet[1] if bullet[1] else r".IP \(bu 2")
            line = bullet[2]
        elif gap and out:
            out.append(paragraph)
        gap = False
        if line.endswith("::") and not literal:
            line, literal_next = line[:-1], True
        out.append(inline(line))
    return out + ([".fi", ".RE"] if literal else [])


def synopsis(lines):
    """kernel-doc gives .B "TYPE" NAME and one .BI "(PARAMETER "  "," a parameter."""
    kind, name = re.match(r'\.B "(.*)" (\S+)', lines[0]).groups()
    kind = re.sub(r"^(?:static |inline )+", "", kind)
    head = kind + ("" if kind.endswith("*") else " ") + name + "("
    head = re.sub(r" \*$", " *", head)
    params = [re.match(r'\.BI "\(?(.*?) *"\s+"(?:,|\);)"', line)[1] for line in lines[1:]]
    one_line = len(head) + len(", ".join(params)) + 2 <= 72
    rows, row = [], '"' + head
    for i, param in enumerate(params):
        named = re.match(r"(.*?[ *])(\w+)((?:\[.*\])?)$", param)
        end = ");" if i == len(params) - 1 else ", " if one_line else ","
        if named and "(" not in param:
            row += '%s" %s "%s%s' % (named[1], named[2], named[3], end)
        else:
            row += param + end
        if end == ",":
            rows.append(row + '"')
            row = '"' + " " * len(head)
    rows.append(row + '"')
    return kind, [".nf"] + [".BI " + r for r in rows] + [".fi"]


def split_pages(text):
    """{name: [(section, lines)]} in the order of the file."""
    pages = {}
    for page in re.split(r"^\.TH ", text, flags=re.M)[1:]:
        sections = []
        lines = page.split("\n")
        for line in lines[1:]:
            if line.startswith(".SH"):
                sections.append((line[4:].strip('"'), []))
            else:
                sections[-1][1].append(line)
        pages[re.match(r'"([^"]+)"', lines[0])[1]] = sections
    return pages


def arguments(lines):
    out, item = [], []
    for line in lines + ['.IP']:
        if line.startswith(".IP"):
            out += body(item, 12)
            item = []
            if line != ".IP":
                out.append(re.sub(r'^\.IP "(.*)" 12', r'.IP "\\fI\1\\fP" 12', line))
        else:
            item.append(line)
    return out


def see_also(name, text, siblings, functions):
    mentioned = [m for m in dict.fromkeys(re.findall(r"irdma_\w+", text)) if m in functions and m != name]
    at = siblings.index(name)
    near = sorted((s for s in siblings if s != name and s not in mentioned), key=lambda s: abs(siblings.index(s) - at))
    names = sorted(mentioned + near[:NEIGHBOURS])
    return [".BR %s (9)," % n for n in names] + [".BR uwarp (7)"]


def render(name, sections, siblings, functions, version, date):
    out = ['.\\" SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only',
           '.\\" Generated from the comment above the function; edit it there.',
           '.TH %s 9 "%s" "uwarp %s" "uwarp connection manager"' % (name.upper(), date, version)]
    text = "\n".join(line for title, lines in sections for line in lines if title != "SYNOPSIS")
    for title, lines in sections:
        out.append(".SH " + ('"%s"' % title if " " in title else title))
        if title == "SYNOPSIS":
            out += synopsis([line for line in lines if line])[1]
        elif title == "ARGUMENTS":
            out += [".B void", "takes no arguments"] if '.IP "void" 12' in lines else arguments(lines)
        else:
            out += body(lines)
    out += [".SH SEE ALSO"] + see_also(name, text, siblings, functions)
    return "\n".join(out) + "\n"


def main():
    directory, version, date = sys.argv[1:]
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../tests/functions.txt")) as f:
        functions = set(f.read().split())
    pages = {n: s for n, s in split_pages(sys.stdin.read()).items() if n in functions}
    for name, sections in pages.items():
        path = os.path.join(directory, name + ".9")
        if os.path.exists(path):
            sys.exit("make_man.py: %s has two comments" % name)
        with open(path, "w") as f:
            f.write(render(name, sections, list(pages), functions, version, date))


if __name__ == "__main__":
    main()
