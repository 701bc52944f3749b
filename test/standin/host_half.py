"""host_half.py SOURCE FOLDER: takes the host half out of a program, since its text is the same in nearly every model's. SOURCE is a generated .cu or
a source that includes such by a path from its own folder. Writes FOLDER/source.cu, which is SOURCE with all that it includes of this kind, and in
which the longer functions of the host half are but declared; and for each model FOLDER/NAME.host.cpp, which defines these functions, for a model that
is called "model", from the same text: the host half, and the parts of the device code that it needs. Prints the folders in which SOURCE finds
what else it includes. Fails where there is no host half, or where it depends on what SOURCE defines. For test/precompile_stand_in.sh.
"""
import pathlib
import re
import sys

from split import split

# What runtime_stub/host includes of kernels/, and what that includes.
NEEDED = {"numbers", "platform", "sync", "launch", "placement", "control", "phase", "tokens", "memory", "task", "registers",
          "dependent"}
SECTION = re.compile(r"^// >>> kernels/vdevice/(\w+)\.cuh\n.*?^// <<< .*?\n", re.MULTILINE | re.DOTALL)
API = re.compile(r"^// >>> runtime_stub/host/tamp_\w+\.h\n.*?^// <<< .*?\n", re.MULTILINE | re.DOTALL)  # is in no namespace: the model's header has it, too
TABLES = re.compile(r"^namespace tamp_host \{\n.*?^}  // namespace tamp_host\n", re.MULTILINE | re.DOTALL)  # what tables of launches need of it
NAMESPACE = re.compile(r"^namespace (\w+)_detail \{$", re.MULTILINE)


def halves(text):
    """The model's name; its source with the host half declared; the source that defines it."""
    begin, end = text.index("// --- host runtime, as it stands"), text.index("// --- host ---")
    device, host = text[:begin], text[begin:end]
    name = NAMESPACE.search(text)[1]
    declared, defined = split(host)
    words = device.index("}  // namespace rk\n")  # the end of the declarations that tables need; more of the same sections stand behind
    sections = [found for found in SECTION.finditer(device) if found[1] in NEEDED]
    parts = [*re.findall(r"^#include <.*\n", device, re.MULTILINE), *API.findall(host),
             f"namespace {name}_detail {{\nnamespace rk {{\n", *(found[0] for found in sections if found.start() < words), "}\n",
             *(found[0] for found in sections if found.start() > words), *TABLES.findall(device), defined, "}\n"]
    return name, device + declared + text[end:], re.sub(rf"\b{name}_detail\b", "model_detail", "".join(parts))


def main():
    source, folder = map(pathlib.Path, sys.argv[1:])
    lines, text, found, folders = source.read_text().split("\n"), [f'#line 1 "{source}"'], {}, [source.parent]

    def add(path, words):
        name, rest, found[name] = halves(words)
        text.append(f'#line 1 "{path}"\n{rest}')

    if "// --- host ---" in "\n".join(lines):
        add(source, "\n".join(lines))
    else:
        for i, line in enumerate(lines):
            included = re.fullmatch(r'#include "(.*\.cu)"', line)
            if included:
                path = source.parent / included[1]
                folders.append(path.parent)
                add(path, path.read_text())
                line = f'#line {i + 2} "{source}"'
            text.append(line)
        macros = re.findall(r"^#define (\w+)", "\n".join(lines), re.MULTILINE)
        if any(re.search(rf"\b{macro}\b", host) for macro in macros for host in found.values()):
            sys.exit("the host half depends on a macro")
    if not found:
        sys.exit("no host half")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.cu").write_text("\n".join(text))
    for name, host in found.items():
        (folder / f"{name}.host.cpp").write_text(host)
    print("\n".join(map(str, folders)))


main()
