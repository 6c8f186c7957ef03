"""Inputs that no peer may send: [(what, bytes, after)]; `after` is the hello to send first ("client", "node") or None. Each is a
valid message with one thing broken."""

import json
import struct

from processes.wire import CLIENT_HELLO, encode, frame, NODE_IDENTITY, PROTOCOL, submission

NODE_HELLO = dict(protocol=PROTOCOL, version="test", name="evil", boot_id="b", instance=1, pid=1,
                  address="127.0.0.1", slots=1, gpus=0, shims=[], closed=[], **NODE_IDENTITY)
SHIM = dict(job_id=1, generation=1, phase="running", slot_mask=1, unseen=False)
CLOSED = dict(slot=0, state="quarantined", incident="0", reason="r")
RANK = dict(rank=0, state="running", pid=1, exit_code=0, signal=0, joined=True)
REPORT = dict(job_id=1, generation=1, revision=1, phase="running", master_port=1, blob="",
              has_world=False, failed_rank=-1, failed_age_us=0, failed_errno_exit=0, failed_class="node", cause="",
              tail="", error="", failed_oom=False, failed_core="", warm_late=False, failed_by_peer=False, notice="", ranks=[RANK])
VALID = [
    (None, "client_hello", CLIENT_HELLO),
    (None, "node_hello", NODE_HELLO),
    ("client", "submit", submission("0" * 32)),
    ("client", "why_get", dict(job="1", ranks_of=0)),
    ("client", "job_get", dict(job="1", after_version=0, wait_us=0, first_rank=0)),
    ("client", "job_list", dict(all=True, after_id=0, limit=1)),
    ("client", "cancel", dict(job="1", signal=15, grace_us=-1)),
    ("client", "node_list", dict(all=True, node="", after="", limit=256)),
    ("client", "server_get", dict(request_id=1)),
    ("client", "node_drain", dict(name="n", slot_mask=1, reason="r")),
    ("client", "node_resume", dict(name="n", slot_mask=1)),
    ("client", "event_list", dict(job_id=0, after_id=0, limit=1, wait_us=0)),
    ("client", "log_read", dict(what="output", request_id=1, job_id=1, generation=1, rank=0, offset=0,
                                tail_lines=0, bytes_max=1, wait_us=0, submitted_ms=0)),
    ("client", "node_read", dict(request_id=1, node="n", what="clock", job="", peers=[], args={})),
    ("node", "node_data", dict(request_id=1, bytes="", problem="p", node_ms=1, server_ms=0)),
    ("client", "input", dict(request_id=1, job_id=1, generation=1, rank=0, offset=0, bytes="", is_end=False, rows=24, columns=80)),
    ("node", "input_state", dict(request_id=1, taken=0, is_closed=False, problem="")),
    ("node", "beat", dict(sent_us=1, shims=[SHIM], closed=[CLOSED], leaving=False, warm=[], silent=[])),
    ("node", "node_event", dict(slot=0, text="x")),
    ("node", "shim_report", REPORT),
    ("node", "progress", dict(job_id=1, generation=1, rank=0, epoch=1, epochs=1, step=1, steps=1,
                              loss=0.5, samples_per_s=1.0, checkpoint_step=0)),
]
# values out of range, by field; each value makes one message
WRONG = dict(
    protocol=[-1, 4294967296, 1.5, "1"], version=[3, "x" * 32, "a\nb"],
    name=["", "a b", "x" * 64, "a/b", "\u00e9"], slots=[0, 65], gpus=[65], pid=[-1, 2147483648],
    boot_id=["", "x" * 64], instance=[-1, 1 << 64, "01", "+1", " 1", "1e3"], address=["", "a\tb"],
    request_id=["", "0" * 31, "0" * 33], nodes=[0, 4097, "2"], nproc_per_node=[0, 65],
    max_restarts=[-1, 1001], grace_us=["x", "-2"], time_limit_us=["-1", "31622400000001"],
    cwd=["", "x" * 4096, "a\0b"], argv=[[], "ls", [1], [None], ["a\0b"], [["x"]]],
    env=[[], {"A": 1}, {"A": "b\0"}], job=["", "x" * 64, 1, None, "a\nb"],
    after_version=["-1", "", "x", 1], wait_us=["60000001", 5], all=[1, "true", None],
    after_id=["9007199254740992"], limit=[0, 501, 2.5], signal=[0, 65, -1], rank=[-1, 32768],
    ranks_of=[-1, 1000001], generation=[0, 1000001], offset=["-1"], tail_lines=[-1, 1000001], bytes_max=[0, 32769],
    job_id=["-1", "9007199254740992", 1], sent_us=["-1", "9223372036854775808"],
    shims=[None, [SHIM, 1], [dict(SHIM, phase="gone")], [dict(SHIM, slot_mask="-1")],
           [dict(SHIM, extra=1)], [{}], [SHIM] * 129],
    closed=[None, {}, [dict(CLOSED, state="gone")], [dict(CLOSED, slot=64)], [dict(CLOSED, extra=1)], [CLOSED] * 65,
            [dict(CLOSED, reason="a\nb")], [dict(CLOSED, incident="-1")]],
    node=["x" * 64, "a\nb", 1], slot=[-1, 64], text=["", "a\nb", "x" * 256], reason=["", "a\nb", "x" * 256],
    slot_mask=["-1", "18446744073709551616"],
    revision=[0, "1"], phase=["", "Running", 1], master_port=[-1, 65536], blob=["=", "A", "AA", "A=A=",
                                                                             "A" * 700, "AAA\n"],
    has_world=[0], is_end=[0, "true"], is_closed=[1], rows=[-1, 65536], columns=[65536, "80"], taken=["-1"], failed_rank=[-2, 32768], first_rank=[-1, 32768], failed_age_us=["-1"], failed_errno_exit=[128],
    failed_class=["", "Node", 1],
    cause=["a\nb", "x" * 256], tail=["x" * 2048, 1], error=["x" * 2048, 1, "a\0b"], failed_oom=[0, "true"], warm_late=[1], failed_by_peer=[1, "true"],
    failed_core=["x" * 256, "a\nb", 1], what=["", "Output", "errors", 1],
    ranks=[[dict(RANK, exit_code=256)], [dict(RANK, signal=65)], [dict(RANK, state="dead")],
           [RANK] * 65, {}], epoch=[-1], steps=["-1"], loss=["0.5", None, 1e301], samples_per_s=[-1])


def broken_json(valid):
    """`valid`: the payload of a good message."""
    text = valid.decode()
    yield "cut", valid[:-1]
    yield "half", valid[:len(valid) // 2]
    yield "something after it", valid + b" x"
    yield "two objects", valid + valid
    yield "final comma", valid[:-1] + b",}"
    yield "unknown key", valid[:-1] + b',"more":1}'
    yield "repeated key", valid[:-1] + b',"type":"beat"}'
    yield "key in another case", text.replace('"type"', '"Type"').encode()
    yield "type in another place", b'{"more":1,' + valid[1:]
    yield "NUL after it", valid + b"\0"
    yield "bad UTF-8", text.replace('"type":"', '"type":"\xff', 1).encode("latin-1")
    yield "array", b"[" + valid + b"]"
    yield "unknown type", text.replace('"type":"', '"type":"x', 1).encode()


RAW = [
    ("empty frame", frame(b"")),
    ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)),
    ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n"),
    ("a frame over the cap", struct.pack(">I", 1 << 30) + b"{"),
    ("the greatest length", b"\xff\xff\xff\xff" + b"x" * 100),
    ("zeros", bytes(4096)),
    ("not JSON", frame(b"hello")),
    ("a number", frame(b"1")),
    ("null", frame(b"null")),
    ("only a string", frame(b'"x"')),
    ("empty object", frame(b"{}")),
    ("only spaces", frame(b"    ")),
    ("a byte order mark", frame(b"\xef\xbb\xbf" + encode("client_hello", **CLIENT_HELLO))),
    ("deep arrays", frame(b"[" * 30000)),
    ("deep objects", frame(b'{"a":' * 10000)),
    ("many tokens", frame(b"[" + b"0," * 32000 + b"0]")),
    ("a long number", frame(b'{"type":"client_hello","protocol":' + b"9" * 60000 + b"}")),
    ("infinity", frame(b'{"type":"client_hello","protocol":1e999,"version":"x"}')),
    ("NaN", frame(b'{"type":"client_hello","protocol":NaN,"version":"x"}')),
    ("a lone surrogate", frame(b'{"type":"client_hello","protocol":1,"version":"\\ud800"}')),
    ("an escaped NUL", frame(b'{"type":"client_hello","protocol":1,"version":"a\\u0000b"}')),
    ("a raw newline", frame(b'{"type":"client_hello","protocol":1,"version":"a\nb"}')),
]


def malformed_inputs():
    """`after` is the hello to send first."""
    inputs = [(what, data, None) for what, data in RAW]
    for after, kind, fields in VALID:
        for what, payload in broken_json(encode(kind, **fields)):
            inputs.append(("%s: %s" % (kind, what), frame(payload), after))
        for name in fields:
            without = {k: v for k, v in fields.items() if k != name}
            inputs.append(("%s without %s" % (kind, name), frame(encode(kind, **without)),
                           after))
            for value in WRONG.get(name, ()):
                head = {"type": kind}
                body = json.loads(encode(kind, **fields))
                if isinstance(value, int) and name in ("instance",):
                    value = str(value)
                body[name] = json.loads(encode("x", **{"v": value}))["v"]
                payload = json.dumps(dict(head, **body), separators=(",", ":")).encode()
                inputs.append(("%s with %s = %.40r" % (kind, name, value), frame(payload), after))
    return inputs
