"""Makes links from the pages to files that are no pages (sources, examples, the README, the frozen logs of docs/log) links of the site: such a file
becomes part of it, below repository/, and mkdocs checks the link like any other. And keeps options in one line: a browser may break -DX=ON behind its hyphen."""
import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
INLINE_CODE = re.compile(r"(<pre.*?</pre>)|(<code>)(.*?)(</code>)", re.S)
OPTION = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]*)")
LINK = re.compile(r"(?<=\]\()((?:\.\./|log/)[^)#\s]+)")


def outside(page_folder, link):
    """The file in the repository that a page's link leads to, if it is none of the site's pages."""
    target = pathlib.Path(os.path.normpath(page_folder / link))
    is_page = target.is_relative_to(ROOT / "docs") and not target.is_relative_to(ROOT / "docs/log")
    return target if target.is_relative_to(ROOT) and not is_page and target.is_file() else None


def on_files(files, config):
    docs = pathlib.Path(config.docs_dir)
    for page in list(files.documentation_pages()):
        folder = (docs / page.src_uri).parent
        for link in LINK.findall(page.content_string):
            if target := outside(folder, link):
                uri = name_in_site(target)
                if files.get_file_from_path(uri) is None:
                    files.append(File.generated(config, uri, content=target.read_bytes()))
    return files


def on_page_markdown(markdown, page, config, files):
    folder = (pathlib.Path(config.docs_dir) / page.file.src_uri).parent
    up = "../" * page.file.src_uri.count("/")

    def in_site(link):
        target = outside(folder, link[1])
        return up + name_in_site(target) if target else link[1]

    return LINK.sub(in_site, markdown)


def on_page_content(html, page, config, files):
    def whole(code):
        return code[1] or code[2] + OPTION.sub(r'<span class="option">\1</span>', code[3]) + code[4]

    return INLINE_CODE.sub(whole, html)


def name_in_site(target):
    """As text, so that a browser shows it; a .md there is no page of the site."""
    return f"repository/{target.relative_to(ROOT).as_posix()}.txt"
