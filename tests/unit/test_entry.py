"""`card exec`'s own half of a start: what it makes of a stage 2 that goes away."""

import os
import threading
from pathlib import Path

import pytest

from launcher.life import runs
from launcher.run import entry
from launcher.run.channel import Channel
from oci import records
from oci.refusal import Refused


def test_a_stage_2_that_is_gone_when_the_command_is_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its report was good, and nobody is left to hear `go`: a refusal, and not a defect of ours."""
    monkeypatch.setattr(entry, "_count", lambda _: None)
    channel = Channel()

    def lacking(*_: object, **__: object) -> list[object]:
        os.close(channel.theirs)
        return []

    monkeypatch.setattr(entry, "lacking", lacking)
    body = records.dump([("status", "ok"), ("egress", "ok")])

    def stage2() -> None:
        os.write(channel.theirs, len(body).to_bytes(4, "little") + body)

    thread = threading.Thread(target=stage2)
    thread.start()
    card = entry.Card(digest="", nonce="", argv=(), start="", home="", limits={})
    run = runs.Run(run="r1", path=str(tmp_path), record=None, state="")
    with pytest.raises(Refused) as caught:
        entry._let_go(run, card, [("nonce", "")], channel)
    thread.join()
    channel.close()
    assert [refusal.reason for refusal in caught.value.refusals] == ["stage2-lost"]
