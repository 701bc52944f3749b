#!/usr/bin/env python3
"""The documentation: the site builds, links lead somewhere, generated pages are up to date, and commands do what the pages say.

    docs_test.py TAMP [WORD...]

A fenced block behind the line <!-- run --> is run, sh by bash -e, python by a Python that has the package; one behind <!-- file: NAME --> is written
to that file. A page's blocks run in order in one folder that looks like the top of the repository, with `tamp` in PATH. Where there is no GPU, and where a page says so, they run on
the stand-in.
TAMP_UPDATE_GOLDEN=1 writes generated pages anew.
"""
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
from onnx import TensorProto

import harness
import models as m
import python_package
from python_package import run

DOCS = harness.ROOT / "docs"
BLOCK = re.compile(r"^<!-- (run|file: (?P<file>[\w./]+)) -->\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@functools.lru_cache(maxsize=None)
def _package(program, lock=threading.Lock()):
    with lock:
        return python_package.python_of(program)


def up_to_date(page, text):
    if os.environ.get("TAMP_UPDATE_GOLDEN") == "1":
        page.write_text(text)
    assert page.read_text() == text, f"{page.relative_to(harness.ROOT)} is out of date: TAMP_UPDATE_GOLDEN=1 test/e2e/docs_test.py TAMP writes it anew"


# --- pages -------------------------------------------------------------------------------------------------------------

def test_the_page_of_commands_is_what_help_says(tamp):
    up_to_date(DOCS / "reference/commands.md", run(sys.executable, DOCS / "site/commands.py", tamp.program))


def test_the_page_of_python_is_what_docstrings_say(tamp):
    up_to_date(DOCS / "reference/python-api.md", run(_package(tamp.program), DOCS / "site/python_api.py"))


def test_the_page_of_rprograms_is_what_the_schema_says(tamp):
    up_to_date(DOCS / "reference/rprogram.md", run(sys.executable, DOCS / "site/rprogram.py"))


def site_python(tamp, lock=threading.Lock()):
    """Of an environment with what builds the site."""
    folder = pathlib.Path(tamp.program).parents[1] / "site_venv"
    python = folder / "bin" / "python"
    with lock:
        if not python.exists():
            run(sys.executable, "-m", "venv", folder)
        python_package.pip_install(python, "-r", DOCS / "site/requirements.txt", "jsonschema>=4")
    return python


def test_the_site_builds_and_the_schema_holds(tamp):
    """mkdocs takes a link to nowhere, a missing heading, and a page that the contents do not list for errors."""
    python = site_python(tamp)
    mkdocs = [python, "-m", "mkdocs", "build", "--strict", "-d", tamp.folder / "site", "-f"]  # no --quiet: it silences --strict
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    run(*mkdocs, DOCS / "site/mkdocs.yml", env=environment)
    assert "tamp" in (tamp.folder / "site/index.html").read_text() and (tamp.folder / "site/repository/README.md.txt").exists()
    for page in (tamp.folder / "site").rglob("*.html"):  # GitHub makes a list where Python's Markdown wants a blank line, or more spaces, before it
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.S)
        unmade = re.search(r"<p>(?:(?!</p>).)*\n *(?:[-*]|\d+\.) (?:(?!</p>).)*</p>", text, re.S)
        assert not unmade, f"{page.relative_to(tamp.folder)}: no list was made of: {unmade[0][:300]}"
    paths = rprograms(tamp)
    check = """import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
for path in sys.argv[2:]:
    jsonschema.validate(json.load(open(path)), schema, cls=jsonschema.Draft202012Validator)
"""
    run(python, "-c", check, DOCS / "reference/rprogram.schema.json", *paths)


def test_a_link_to_nowhere_stops_the_site(tamp):
    like_the_repository(tamp.folder, but="docs")
    shutil.copytree(DOCS, tamp.folder / "docs")
    with open(tamp.folder / "docs/tuning.md", "a") as page:
        page.write("[one](nowhere.md) [two](glossary.md#nowhere) [three](../nowhere.cu)\n")
    done = subprocess.run([site_python(tamp), "-m", "mkdocs", "build", "--strict", "-d", tamp.folder / "site", "-f", tamp.folder / "docs/site/mkdocs.yml"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 1 and "Aborted with 3 warnings" in done.stdout, done.stdout
    assert all(link in done.stdout for link in ["'nowhere.md'", "'glossary.md#nowhere'", "'../nowhere.cu'"]), done.stdout


def like_the_repository(folder, but="build"):
    for entry in harness.ROOT.iterdir():
        if entry.name not in {"build", but} and not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)


def rprograms(tamp):
    """With everything that is only there sometimes: launches, a gang, a count, frozen inputs, a batch, dimensions, activations."""
    found = {}

    def compiled(name, model, *options):
        (tamp.folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        tamp("compile", f"{name}.onnx", "-o", name, "--vdevice", "h200", *options)
        found[name] = tamp.folder / name / f"{name}.rprogram.json"

    two = m.model([m.node("Add", ["x", "z"], ["y"])], [m.value("x", ["N", 4]), m.value("z", [1, 4])], [m.value("y", ["N", 4])])
    np.save(tamp.folder / "z.npy", np.ones((1, 4), np.float32))
    compiled("frozen", two, "--dim", "N=3", "--freeze", "z=z.npy")
    compiled("batch", m.relu(), "--batch", "2")
    compiled("launches", m.conv(), "--execution", "graph", "--precision", "fp16", "--activations", "fp32")
    compiled("count", m.model([m.node("NonZero", ["x"], ["y"])], None, [m.value("y", [2, None], TensorProto.INT64)]))
    weights = [m.constant("w", np.ones((1, 256, 64), np.float32)), m.constant("r", np.ones((1, 256, 64), np.float32))]
    compiled("gang", m.model([m.node("LSTM", ["x", "w", "r"], ["y"], hidden_size=64)], [m.value("x", [20, 1, 64])], [m.value("y", [20, 1, 1, 64])], weights))
    rows = m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", ["N", "M"])], [m.value("y", ["N", "M"])])
    compiled("lengths", rows, "--dim", "M=2,8", "--batch", "1:4")
    read = {name: json.loads(path.read_text()) for name, path in found.items()}
    assert read["launches"]["launches"] and read["count"]["outputs"][0]["count"] == 1 and read["frozen"]["model"]["frozen"] == ["z"], read
    assert read["batch"]["model"]["batch"] == 2 and read["frozen"]["model"]["dims"] == {"N": 3} and any(rop["gang"] for rop in read["gang"]["rops"])
    assert read["lengths"]["smaller"][0]["lengths"] and read["lengths"]["inputs"][0]["axes"] and read["lengths"]["model"]["batches"], read["lengths"]
    assert read["launches"]["model"]["activations"] == "fp32" and read["launches"]["schedule"]["launches"]
    return list(found.values())


def test_links_outside_of_the_pages_lead_somewhere(tamp):
    """mkdocs looks at docs/; these are the other files that people read."""
    for page in [harness.ROOT / "README.md", harness.ROOT / "CHANGELOG.md", *(harness.ROOT / "examples").rglob("*.md"), *(DOCS / "log").glob("*.md")]:
        for link in LINK.findall(page.read_text()):
            path, _, heading = link.partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = page.parent / path if path else page
            assert target.exists(), f"{page}: link to {link}"
            if heading and target.suffix == ".md":
                titles = [line.lstrip("# ").lower() for line in target.read_text().splitlines() if line.startswith("#")]
                headings = [re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles]
                assert heading in headings, f"{page}: link to {link}, headings are {headings}"


def test_the_page_of_the_c_api_has_every_name_of_the_header(tamp):
    rows = m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", ["N", 4])], [m.value("y", ["N", 4])])
    (tamp.folder / "relu.onnx").write_bytes(rows.SerializeToString())
    tamp("compile", "relu.onnx", "-o", "out", "--dim", "N=1:4")
    header = re.sub(r"/\*.*?\*/|//[^\n]*", "", (tamp.folder / "out/relu.h").read_text(), flags=re.S)
    names = {name.replace("relu_", "NAME_") for name in re.findall(r"\b(?:tamp_\w+|TAMP_[A-Z]\w+|relu_\w+)\b", header)}
    names -= {"TAMP_MODEL_H_relu", "TAMP_API_H", "TAMP_LENGTHS_H", "tamp_cpp"}
    names |= set(re.findall(r"using tamp_cpp::(\w+);", header))
    for members in re.findall(r"^class (?:ModelOf|VaryingModelOf) .*?\n public:(.*?)^ private:", header, re.M | re.S):
        names |= set(re.findall(r"^  (?! )(?:[\w:<>*&]+ )+(\w+)\(", members, re.M))
    assert {"Input", "run_dlpack", "info", "get", "output_shape", "lengths"} <= names, names
    for struct in re.findall(r"typedef struct tamp_\w+ \{(.*?)\}", header, re.S):
        names |= set(re.findall(r"(\w+);", struct))
    page = (DOCS / "reference/c-api.md").read_text()
    missing = sorted(name for name in names if not re.search(rf"\b{name}\b", page))
    assert not missing, f"docs/reference/c-api.md lacks {missing}"


def test_the_readme_counts_operators_right(tamp):
    domains = [one["domain"] for one in json.loads(tamp("ops", "--json").stdout)]
    said = f"**{len(domains)} operators**, {domains.count('ai.onnx')} of ONNX and {domains.count('com.microsoft')} of ONNX Runtime"
    assert said in " ".join((harness.ROOT / "README.md").read_text().split()), f"README.md does not say {said!r}"


# --- commands ----------------------------------------------------------------------------------------------------------

def run_blocks(tamp, page):
    like_the_repository(tamp.folder)
    path = [pathlib.Path(tamp.program).parent, pathlib.Path(sys.executable).parent, os.environ["PATH"]]  # a python3 with numpy: faster weights
    environment = {**os.environ, "PATH": ":".join(map(str, path)), "TAMP_CACHE_DIR": str(tamp.folder / "cache")}
    text = (DOCS / page).read_text()
    count = 0
    for block in BLOCK.finditer(text):
        count += 1
        if block["file"]:
            path = tamp.folder / block["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"])
            continue
        command = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [_package(tamp.program), "-c"]}[block["language"]]
        done = subprocess.run([*command, block["text"]], cwd=tamp.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=harness.RUN_SECONDS)
        assert done.returncode == 0, f"docs/{page}: exit code {done.returncode} of\n{block['text']}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    marks = len(re.findall(r"^ *<!-- (?:run|file)", text, re.M))
    assert count == marks > 0, f"docs/{page}: {marks} marks, {count} blocks behind one"


def pages_with_commands():
    return [str(path.relative_to(DOCS)) for path in sorted(DOCS.rglob("*.md")) if re.search(r"^ *<!-- (run|file)", path.read_text(), re.M)]


def commands_of(page):
    def test(tamp):
        run_blocks(tamp, page)

    test.__name__ = f"test_commands_of_{re.sub(r'[^a-z]', '_', page.removesuffix('.md'))}"
    return test


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals()) + [commands_of(page) for page in pages_with_commands()]))
