"""``failures.jsonl`` over several runs."""

from __future__ import annotations

import json
from pathlib import Path

from stagewave.batch.failures import NAME, Failures
from stagewave.batch.item import Failure, Item, PassedOver
from stagewave.batch.spoken_files import failed_file
from stagewave.batch.texts import failed_line


def recording(name: str, form: str = "srt") -> Item:
    return Item(f"/rec/{name}.wav", Path(f"/out/{name}.{form}"))


def line(name: str, text: str = "x", source: str = "l.csv:2") -> Item:
    return Item(source, Path(f"/out/{name}.wav"), fields={"text": text})


def failed(item: Item, code: str = "not_audio") -> Failure:
    return Failure(item.source, code, "no", item)


def sources(folder: Path) -> list[str]:
    return sorted(json.loads(told)["source"] for told in (folder / NAME).read_text().splitlines())


def texts(folder: Path) -> list[str]:
    return sorted(json.loads(told)["text"] for told in (folder / NAME).read_text().splitlines())


def earlier(folder: Path, *failures: Failure, form: object = failed_file) -> None:
    run = Failures(form, folder / NAME, fed_back=False)
    for failure in failures:
        run.add(failure)
    run.keep()


def later(folder: Path, form: object = failed_file) -> Failures:
    return Failures(form, folder / NAME, fed_back=False)


def test_a_run_of_another_input_leaves_what_failed_before(tmp_path: Path) -> None:
    earlier(tmp_path, failed(recording("a")))
    run = later(tmp_path)

    run.settle(recording("b"))
    run.add(failed(recording("c")))
    run.keep()

    assert sources(tmp_path) == ["/rec/a.wav", "/rec/c.wav"]
    assert run.count == 1


def test_what_a_run_has_settled_goes_and_what_fails_again_stands_there_once(tmp_path: Path) -> None:
    earlier(tmp_path, failed(recording("a")), failed(recording("b"), "worker_lost"))
    run = later(tmp_path)

    run.settle(recording("a"))
    run.add(failed(recording("b"), "not_audio"))
    run.keep()

    [told] = (json.loads(line) for line in (tmp_path / NAME).read_text().splitlines())
    assert (told["source"], told["error"]["code"]) == ("/rec/b.wav", "not_audio")


def test_without_any_failure_left_there_is_no_file(tmp_path: Path) -> None:
    earlier(tmp_path, failed(recording("a")))
    run = later(tmp_path)

    run.settle(recording("a"))
    run.keep()

    assert not (tmp_path / NAME).exists()


def test_the_same_recording_in_another_form_is_something_else(tmp_path: Path) -> None:
    earlier(tmp_path, failed(recording("a", "srt")))
    run = later(tmp_path)

    run.settle(recording("a", "txt"))
    run.keep()

    assert sources(tmp_path) == ["/rec/a.wav"]


def test_a_folder_that_can_be_looked_into_again_is_no_failure_any_more(tmp_path: Path) -> None:
    earlier(tmp_path, Failure("/rec/one", "unreadable", "no"), Failure("/rec", "unreadable", "no"))
    run = later(tmp_path)

    run.settle(PassedOver("/rec/one/notes.txt"))
    run.keep()

    assert sources(tmp_path) == ["/rec"], "nobody has looked into that"


def test_a_line_goes_by_its_id_and_one_that_was_none_by_its_place(tmp_path: Path) -> None:
    unreadable = Failure("l.csv:3", "line_unreadable", "no")
    earlier(tmp_path, failed(line("a", "!!!")), failed(line("b", "???")), unreadable, form=failed_line)
    run = later(tmp_path, failed_line)

    run.settle(line("a", "put right"))
    run.settle(line("c", "put right", source="l.csv:3"))
    run.keep()

    assert texts(tmp_path) == ["???"]


def test_what_another_run_has_written_meanwhile_stays(tmp_path: Path) -> None:
    run = later(tmp_path)
    run.add(failed(recording("a")))
    earlier(tmp_path, failed(recording("b")))

    run.keep()

    assert sources(tmp_path) == ["/rec/a.wav", "/rec/b.wav"]


def test_lines_that_somebody_has_written_stay_as_they_are(tmp_path: Path) -> None:
    written = [b'{"text": "mine"}', b"\xff nonsense", b"[1]", b"[" * 100_000]
    (tmp_path / NAME).write_bytes(b"\r\n\n".join(written))
    run = later(tmp_path)

    run.settle(recording("a"))
    run.keep()

    assert (tmp_path / NAME).read_bytes().splitlines() == written


def test_when_it_is_fed_back_all_that_was_in_it_is_settled(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"text": "without an id"}\n')
    run = Failures(failed_line, tmp_path / NAME, fed_back=True)

    run.add(failed(line("000001", "without an id")))
    run.keep()

    assert texts(tmp_path) == ["without an id"]
    assert len((tmp_path / NAME).read_text().splitlines()) == 1
