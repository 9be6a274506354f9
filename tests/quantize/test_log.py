"""The log's format, and that it neither doubles nor vanishes."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

from epu.log import StageFormatter, get_logger


def test_format() -> None:
    record = logging.LogRecord("epu.quantize", logging.INFO, "", 0, "Saved %s", ("m.onnx",), None)
    text = StageFormatter().format(record)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d - INFO - epu - quantize - Saved m\.onnx", text)


def test_loggers_are_below_epu() -> None:
    assert get_logger("codegen").name == "epu.codegen"
    assert len(logging.getLogger("epu").handlers) == 1


def shown(script: str) -> list[str]:
    code = f"import logging\nfrom epu.log import get_logger\n{script}"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stderr.splitlines()


def test_shown_once_without_any_configuration() -> None:
    lines = shown("get_logger('fx'); get_logger('fx').info('ranges'); get_logger('fx').debug('detail')")
    assert [line.split(" - ", 1)[1] for line in lines] == ["INFO - epu - fx - ranges"]


def test_shown_once_by_the_application_where_it_configures_logging() -> None:
    assert shown("logging.basicConfig(level=logging.INFO); get_logger('fx').info('ranges')") == ["INFO:epu.fx:ranges"]


def test_a_library_that_logs_on_the_root_changes_nothing() -> None:
    lines = shown(
        "logging.debug('x'); get_logger('fx').info('ranges'); logging.debug('x'); get_logger('fx').info('bits')"
    )
    assert [line.split(" - ", 1)[-1] for line in lines] == ["INFO - epu - fx - ranges", "INFO - epu - fx - bits"]


def test_a_handler_that_the_application_adds_shows_it() -> None:
    add = "h = logging.StreamHandler(); h.setFormatter(logging.Formatter('mine %(message)s')); logging.getLogger().addHandler(h)"
    assert shown(f"logging.debug('x'); {add}; get_logger('fx').info('ranges')")[-1] == "mine ranges"


def test_a_level_of_the_root_alone_hides_nothing() -> None:
    lines = shown("logging.getLogger().setLevel(logging.DEBUG); get_logger('fx').info('ranges')")
    assert [line.split(" - ", 1)[1] for line in lines] == ["INFO - epu - fx - ranges"]


def test_level_chosen_before_stays() -> None:
    assert shown("logging.getLogger('epu').setLevel(logging.ERROR); get_logger('fx').info('ranges')") == []
