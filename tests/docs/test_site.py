"""The site of the documentation builds with strict links, and needs nothing from elsewhere to be read and searched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.engine import errors

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_error_class_is_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "errors.html").read_text()
    classes = [
        name for name, one in vars(errors).items() if isinstance(one, type) and one.__module__ == errors.__name__
    ]
    assert [name for name in classes if f'id="{name}"' not in page] == []
    assert errors.UserCodeError.remedy.partition(";")[0] in page


def test_the_reference_is_made_of_the_docstrings(site: Path) -> None:
    text = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    assert "<blockquote>" not in text, "an example is shown as code"
    methods = ["StreamEnvironment.execute", "DataStream.map_batches", "KafkaSource", "Harness.push"]
    assert [name for name in methods if f'.{name}"' not in text] == []
    public = [(name, getattr(penstock, name)) for name in dir(penstock) if not name.startswith("_")]
    ours = [(name, one) for name, one in public if getattr(one, "__module__", "").startswith("penstock.")]
    assert len(ours) > 100
    missing = [name for name, one in ours if f'id="{one.__module__}.{name}"' not in text and f'id="{name}"' not in text]
    assert missing == []


def test_pages_load_nothing_from_elsewhere_and_are_searched_offline(site: Path) -> None:
    loaded = re.compile(r'(?:<script[^>]+src|<link[^>]+rel="stylesheet"[^>]+href|<img[^>]+src)="(https?:[^"]+)"')
    assert {found for page in site.rglob("*.html") for found in loaded.findall(page.read_text())} == set()
    assert "watermark" in (site / "search" / "search_index.json").read_text()


def test_the_page_on_performance_has_the_newest_reading_of_each_benchmark(site: Path) -> None:
    page = (site / "performance.html").read_text()
    path = max((ROOT / "perf" / "results").glob("grep-*.json"))
    (result,) = (one for one in json.loads(path.read_text())["results"] if one["variant"] == "1% hits")
    row = page.partition("grep, 1% hits")[2].partition("</tr>")[0]
    assert [f"{result['ours']['events_per_second'] / 1e6:.3g}", f"{result['ratio']:.3g}"] == [
        cell for cell in re.findall(r"<td>([^<]*)</td>", row) if re.fullmatch(r"[\d.]+", cell)
    ][:2]
    assert "<!-- performance" not in page
    for chart in re.findall(r'src="(images/performance/[^"]+)"', page):
        assert (site / chart).exists(), chart


def test_every_page_is_in_the_navigation() -> None:
    named = (ROOT / "mkdocs.yml").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in named and not re.match(r"adr/\d", page)] == []
