"""What a worker tries from inside, as text: run by the image's own python3, in a card and in a plain container alike.

Takes a JSON list of attempts and prints a JSON list of [result, milliseconds]. A result is `ok` for a connection that
opened, `reply` for a datagram that was answered, else the errno's name or `timeout`.
"""

PROGRAM = r"""
import errno, json, socket, sys, time

def attempt(kind, address, port, payload="00"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as s:
        s.settimeout(1.5)
        s.connect((address, port))
        if kind == "tcp":
            return "ok"
        s.send(bytes.fromhex(payload))
        s.recv(4096)
        return "reply"

out = []
for words in json.loads(sys.argv[1]):
    start = time.perf_counter()
    try:
        result = attempt(*words)
    except TimeoutError:
        result = "timeout"
    except OSError as error:
        result = errno.errorcode.get(error.errno, str(error))
    out.append([result, round((time.perf_counter() - start) * 1000, 2)])
print(json.dumps(out))
"""
