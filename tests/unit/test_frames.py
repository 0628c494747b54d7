"""Frames keep messages and output apart, however the stream is cut and whatever the output looks like."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_submit import (
    AT_ONCE,
    FRAME,
    LARGEST_FRAME,
    MARK,
    MESSAGE,
    MESSAGES,
    STDERR,
    STDOUT,
    Decoder,
    frame,
    message,
    parse_message,
)

FRAMES = st.lists(
    st.tuples(st.sampled_from([MESSAGE, STDOUT, STDERR]), st.integers(0, 2**32 - 1), st.binary(max_size=40))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=8,
)


def decoded(pieces: list[bytes]) -> list[tuple[bytes, int, bytes]]:
    decoder = Decoder()
    return [found for piece in pieces for found in decoder.feed(piece)]


@given(FRAMES, st.lists(st.integers(0, 500)))
def test_frames_arrive_whole_however_the_stream_is_cut(frames, cuts):
    stream = b"".join(frame(*each) for each in frames)
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    assert decoded([stream[start:end] for start, end in zip(ends, ends[1:])]) == frames


@pytest.mark.parametrize(
    "output",
    [
        message("exit", task=0, status=0),
        MARK,
        frame(STDOUT, 0, b"a frame within a frame"),
        FRAME.pack(STDOUT, 0, LARGEST_FRAME),
        b"\xff\xfe\r\n\0",
    ],
)
def test_output_that_looks_like_frames_is_output(output):
    stream = frame(STDOUT, 1, output) + frame(STDERR, 1, output)
    assert decoded([bytes([byte]) for byte in stream]) == [(STDOUT, 1, output), (STDERR, 1, output)]


@given(st.lists(st.binary(max_size=60)))
def test_noise_is_refused_or_awaits_more(pieces):
    with contextlib.suppress(ValueError):
        decoded(pieces)


@pytest.mark.parametrize("noise", [b"Last login: Mon Nov 30", FRAME.pack(STDOUT, 0, LARGEST_FRAME + 1)])
def test_what_is_no_frame_is_named(noise):
    with pytest.raises(ValueError, match="no frame starts with"):
        decoded([noise])


def test_a_message_has_the_bytes_of_arguments_whatever_they_mean():
    [(kind, _, payload)] = decoded([message("run", argv=["caf\udce9"])])
    assert (kind, payload.rstrip()) == (MESSAGE, b'{"type": "run", "argv": ["caf\xe9"]}')


def test_a_message_is_long_enough_to_be_sent_at_once():
    assert len(message("ping")) >= AT_ONCE


def test_messages_of_agents_are_read():
    payload = json.dumps({"type": "exit", "task": 1, "status": -9, "cpu": 2, "memory": 3, "why": ""}).encode()
    fields = {"task": 1, "status": -9, "cpu": 2, "memory": 3, "why": ""}
    assert parse_message(payload) == ("exit", fields)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"{}",
        b'{"type": "finish"}',
        b'{"type": ["exit"]}',
        b'{"type": "refuse"}',
        b'{"type": "refuse", "why": 1}',
        b'{"type": "refuse", "why": "full", "link": 1}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_refused(payload):
    with pytest.raises(ValueError):
        parse_message(payload)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_payload_is_a_message_or_refused(payload):
    with contextlib.suppress(ValueError):
        assert parse_message(payload)[0] in MESSAGES


@given(st.sampled_from(sorted(MESSAGES)), st.data())
def test_any_fields_are_those_of_the_message_or_refused(type_, data):
    fields = data.draw(st.fixed_dictionaries(dict.fromkeys(MESSAGES[type_], JSON)))
    with contextlib.suppress(ValueError):
        assert parse_message(json.dumps({"type": type_, **fields}).encode()) == (type_, fields)
