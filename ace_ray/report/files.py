"""A report's files besides the page: Markdown, CSV and images."""

from __future__ import annotations

from ace_ray.report.compare_files import files_of as comparison_files
from ace_ray.report.compare_tables import tables_of
from ace_ray.report.content import Content
from ace_ray.report.render import csv_text, escaped, markdown
from ace_ray.report.tested import Tested


def files_of(content: Content, tests: Tested | None) -> dict[str, bytes]:
    """Name -> content: a CSV and a Markdown file per table, a PNG and an SVG per figure, the files
    of a comparison, and ``report.md`` with all of it but those."""
    from ace_ray.report.figures import FORMATS, draw

    compared = [found.comparisons[content.rules] for found in content.benchmarks]
    files: dict[str, str | bytes] = {}
    pages = [f"# {escaped(content.title)}" if content.sweep else "# Report", ""]
    pages += [f"Rule set: {content.rules}. Shares in percent with 95 % intervals.", ""]
    pages += [f"- {escaped(run.label)}: {escaped(run.uri)}" for run in content.runs]
    if content.sweep is not None:
        pages += [f"- not here: {escaped(str(one))}" for one in content.sweep.left_out]
    pages.append("")
    for table in content.tables():
        files[f"{table.name}.csv"] = csv_text(table)
        files[f"{table.name}.md"] = markdown(table, n=table in compared)
        pages.append(str(files[f"{table.name}.md"]))
    for figure in content.figures():
        files |= {f"{figure.name}.{form}": draw(figure, form) for form in FORMATS}
        title = escaped(figure.title)
        pages += [f"## {title}", "", f"![{title}]({figure.name}.svg)", ""]
    for found in content.benchmarks:
        pages += [f"- {escaped(note)}" for note in found.papers[content.rules].notes]
    comparison = tests.comparison if tests else None
    if comparison is not None and tests is not None:
        compared_files = comparison_files(comparison, list(tables_of(comparison)), tests.flips)
        files |= compared_files
        pages.append("- differences and flips, with statistics: [comparison.md](comparison.md)")
    elif tests is not None:
        pages.append(f"- not compared: {escaped(tests.refused)}")
        pages += [f"  - {escaped(one)}" for one in tests.differences]
    files["report.md"] = "\n".join(pages).rstrip() + "\n"
    return {
        name: content if isinstance(content, bytes) else content.encode("utf-8", "replace")
        for name, content in files.items()
    }
