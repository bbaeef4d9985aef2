"""Guards against figures of a GPU run that reach the table wrongly or not at all."""

import json
from pathlib import Path

from tools.gpu_table import tables

REPORT = """<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2" time="3.4"/>
<testsuite tests="2" failures="0" errors="0" skipped="0" time="1.2"/></testsuites>"""


def test_every_part_that_is_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "tests.xml").write_text(REPORT)
    parts = {
        "bandwidth": [
            {"card": "A", "arch": "sm_1", "date": "2026-01-02", "read_gb_per_s": 3610.0},
            *(
                {
                    "format": name,
                    "gb_per_s_1": 2731.4,
                    "share_1": 0.756,
                    "gb_per_s_4": 791.0,
                    "share_4": 0.219,
                }
                for name in ("Q4_K", "Q8_0")
            ),
        ],
        "layers": [
            {"card": "A", "read_gb_per_s": 4000.0},
            {
                "layer": "attention",
                "early": True,
                "kernels": 14.0,
                "us": 106.8,
                "bytes": 41_000,
                "beside_us": 9.7,
            },
            {"head_us": 113.7, "early": False, "bytes": 400_000},
            {"laptop": "L", "step_us": 10_400.0, "tokens_per_s": 96.2},
        ],
        "writing": [{"model": "M", "us": 250.0, "waits": 1.0, "waited_us": 200.0, "host_us": 50.0}],
    }
    for name, rows in parts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    told = list(tables(tmp_path))
    assert "7 tests passed, 2 failed, 2 were skipped, in 5 s." in told
    assert "A (sm_1), 2026-01-02: reads 3,610 GB/s." in told
    assert "| Q8_0 | 2,731 | 76% | 791 | 22% |" in told
    assert "| attention | yes | 14 | 106.8 | 41,000 | 9.7 |" in told
    assert "| head | no | 2 | 113.7 | 400,000 | 113.6 |" in told
    assert "| L | 10.4 | 96 |" in told
    assert "| M | 250.0 | 1.0 | 200.0 | 50.0 |" in told


def test_a_run_of_the_tests_alone_has_no_empty_tables(tmp_path: Path) -> None:
    (tmp_path / "tests.xml").write_text(REPORT)
    assert [line for line in tables(tmp_path) if line.startswith("#")] == ["## Tests"]
