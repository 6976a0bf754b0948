"""What `make docs` does beyond MkDocs: pages as GitHub shows them, formulas as MathML, no public name without a word.

- Files outside docs/ that pages link to come along: the project's own pages as pages, anything else as a file.
- A list or table right under a line of text is one, as on GitHub.
- Formulas become MathML while the site is built: browsers show it without scripts, fonts or a network.
- A name in `__all__` without a docstring, or on no page of the reference, is an error.
"""

from __future__ import annotations

import logging
import posixpath
import re
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md", "SECURITY.md": "security.md"}
INTERNAL = {"terrine.cli", "terrine.service.app"}  # `__all__` for the project's own use
log = logging.getLogger("mkdocs.plugins.terrine")

_LINK = re.compile(r"(\]\()(?![a-z]+:|#|/)([^)#\s]+)")
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.) +\S")
_FORMULA = re.compile(
    r"^\s*(?P<fence>```+|~~~+).*?^\s*(?P=fence)\s*$|(?P<ticks>`+)[^`].*?(?P=ticks)(?!`)"
    r"|\$\$(?P<block>[^$]+)\$\$|(?<![\\\w$])\$(?![\s$])(?P<inline>[^$]+?)(?<!\s)\$(?![\w$])",
    flags=re.DOTALL | re.MULTILINE,
)
_KEPT = "xformula"  # and a number: stands for a formula while Markdown is read
_CITED = re.compile(r"\[((?:PATE17|PATE18|TERRINE|CKS20|MIR17|BS16|DRS22), [^\]]+)\]")
_slug = slugify(case="lower")
_ROW = re.compile(r"^\s*\|.*\|\s*$")


def on_files(files: Files, *, config: Any) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    place = next((source for source, name in PAGES.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}")
    linked = _LINK.sub(lambda found: found[1] + _target(found[2], place, page.file.src_uri, config, files), markdown)
    text, page.meta["formulas"] = without_formulas(linked)
    return as_github(text)


def on_page_content(content: str, *, page: Any, config: Any, files: Files) -> str:
    """Formulas where their places were kept."""
    formulas = page.meta.get("formulas", [])
    return re.sub(f"{_KEPT}(\\d+)x", lambda found: formulas[int(found[1])], content)


def on_env(env: Any, *, config: Any, files: Files) -> None:
    for fault in undocumented(config["docs_dir"]):
        log.warning(fault)  # with `strict` an error


def _target(link: str, place: str, page: str, config: Any, files: Files) -> str:
    """Where a link of the file ``place`` leads on the site."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
    wanted = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}")
    if wanted.startswith("files/") and wanted not in files.src_uris and (ROOT / path).is_file():
        files.append(File.generated(config, wanted, abs_src_path=str(ROOT / path)))
    return posixpath.relpath(wanted, posixpath.dirname(page) or ".")


def as_github(markdown: str) -> str:
    """A blank line before lists and tables that follow a line of text; nested items are indented by four."""
    lines: list[str] = []
    fence = None
    for line in markdown.splitlines():
        found = _FENCE.match(line)
        if found and fence is None:
            fence = found[1]
        elif found and fence is not None and line.strip().startswith(fence):
            fence = None
        elif fence is None and lines:
            before = lines[-1]
            starts_list = _ITEM.match(line) and not _ITEM.match(before) and not before.startswith((" ", "\t"))
            starts_table = _ROW.match(line) and not _ROW.match(before)
            if before.strip() and (starts_list or starts_table):
                lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def without_formulas(markdown: str) -> tuple[str, list[str]]:
    """The text with a word in the place of each formula, which Markdown would misread, and the formulas as MathML."""
    formulas: list[str] = []

    def keep(found: re.Match[str]) -> str:
        block, inline = found["block"], found["inline"]
        if block is None and inline is None:
            return found[0]  # code
        formulas.append(mathml(block or inline, display="inline" if block is None else "block"))
        return f"{_KEPT}{len(formulas) - 1}x"

    return _FORMULA.sub(keep, markdown), formulas


def mathml(formula: str, *, display: str) -> str:
    plain = formula.replace(r"\arg\max", r"\operatorname{arg\,max}").replace(":=", "≔")
    written = convert(plain, display=display)
    if left := re.findall(r"\\[A-Za-z]+", written):
        log.warning("A formula has %s, which does not become MathML: %s", ", ".join(left), formula)
    written = re.sub(r"<mi>(&#x02032;|′)</mi>", "<mo>′</mo>", written)
    written = re.sub(r'<mi mathvariant="(double-struck|script)">([A-Z])</mi>', _letter, written)
    return f'<span class="long-formula">{written}</span>' if display == "inline" and len(formula) > 30 else written


def _letter(found: re.Match[str]) -> str:
    """Browsers know these letters by their own code points only."""
    name = f"DOUBLE-STRUCK CAPITAL {found[2]}" if found[1] == "double-struck" else f"SCRIPT CAPITAL {found[2]}"
    for full in (name, f"MATHEMATICAL {name}"):
        with suppress(KeyError):
            return f"<mi>{unicodedata.lookup(full)}</mi>"
    return found[0]


def undocumented(docs: str) -> list[str]:
    """Public names without a docstring, and those that no page of the reference shows."""
    package = griffe.load("terrine", search_paths=[str(ROOT / "src")])
    pages = "\n".join(page.read_text(encoding="utf-8") for page in Path(docs, "reference").glob("*.md"))
    shown = set(re.findall(r"^::: ([\w.]+)$", pages, flags=re.MULTILINE))
    exports = {
        (module.path, str(name)): module[str(name)].final_target if module[str(name)].is_alias else module[str(name)]
        for module in _modules(package)
        if module.exports is not None and module.path not in INTERNAL
        for name in module.exports
    }
    on_pages = {found.path for (module, name), found in exports.items() if shown & {module, f"{module}.{name}"}}
    faults = set()
    for (module, name), found in exports.items():
        if found.path not in on_pages and found.parent.path not in shown:
            faults.add(f"No page of docs/reference shows {module}.{name}.")
        faults |= {f"{path} is public and has no docstring." for path in _without_words(found)}
    return sorted(faults)


def _modules(module: Any) -> Any:
    yield module
    for inner in module.modules.values():
        if not inner.is_alias:
            yield from _modules(inner)


def _without_words(found: Any) -> list[str]:
    faults = [] if found.docstring else [found.path]
    if found.is_class:
        bases = [base for base in found.mro() if base.path.startswith("terrine")]
        for name, member in found.members.items():
            inherits = any(name in base.members and base.members[name].docstring for base in bases)
            if not name.startswith("_") and member.is_function and not member.docstring and not inherits:
                faults.append(member.path)
    return faults


class Citations(griffe.Extension):
    """`[PATE18, Thm. 6]` in a docstring leads to that heading of docs/math.md."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _CITED.sub(lambda c: f"[\\[{c[1]}\\]][{_slug(c[1], '-')}]", obj.docstring.value)
