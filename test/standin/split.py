"""split.py STAND_IN DECLARED DEFINED: writes the stand-in's headers twice: with declarations only of the functions that are longer than three lines
and no templates, and with those functions as ordinary ones, which one object file defines for all programs. What is not
recognised stays as it is, an inline function in both. For test/precompile_stand_in.sh.
"""
import pathlib
import re
import sys

FUNCTION = re.compile(r"(\[\[.*?\]\] )?inline (?!constinit |namespace |constexpr |auto )")


def split(text):
    declared, defined, lines, i = [], [], text.split("\n"), 0
    while i < len(lines):
        begin = FUNCTION.match(lines[i])
        if begin and ("(" not in lines[i] or (i and lines[i - 1].startswith("template"))):
            begin = None
        last = i
        if begin:
            while not lines[last].endswith(("{", "}", ";")):
                last += 1
        if not begin or not lines[last].endswith(") {"):
            declared.append(lines[i])
            defined.append(lines[i])
            i += 1
            continue
        end = lines.index("}", last)
        function = [(begin[1] or "") + lines[i][begin.end():], *lines[i + 1:end + 1]]
        if end - last < 3:
            declared += lines[i:end + 1]
            defined += lines[i:end + 1]
        else:
            declared += [*function[:last - i], function[last - i].removesuffix(" {") + ";"]
            defined += function
        i = end + 1
    return "\n".join(declared), "\n".join(defined)


def main():
    stand_in, *folders = map(pathlib.Path, sys.argv[1:])
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for header in sorted(stand_in.glob("*.h")):
        text = header.read_text()
        for folder, part in zip(folders, split(text) if header.name != "cpu_races.h" else (text, text)):
            (folder / header.name).write_text(part)


if __name__ == "__main__":
    main()
