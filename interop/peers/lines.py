"""The line protocol of interop/README.md, for the peers in Python.

A peer gives `locks`: an object with `version`, `make(name, ttl)`, `acquire(lock, wait)`, `extend(lock, ttl)`,
`release(lock)` and `first`, a client of the first server.
"""

import sys
import threading
import time

# What those do who load one lock together: under it, and behind it.
WORK = 0.001
PAUSE = 0.005


def now():
    return time.time_ns() // 1000


class Peer:
    def __init__(self, locks):
        self.locks = locks
        self.held = {}

    def answer(self, verb, *words):
        name, rest = (words[0], words[1:]) if words else (None, ())
        if verb == "hello":
            return f"ok\t{self.locks.version}"
        if verb == "try":
            return self.take(name, int(rest[0]), 0)
        if verb == "lock":
            return self.take(name, int(rest[0]), int(rest[1]))
        if verb == "extend":
            lock = self.held.get(name)
            return f"ok\t{now()}" if lock and self.locks.extend(lock, int(rest[0])) else "lost"
        if verb == "release":
            lock = self.held.pop(name, None)
            begin = now()
            return f"ok\t{begin}" if lock and self.locks.release(lock) else "lost"
        if verb == "soak":
            return self.soak(name, rest[0], *map(int, rest[1:]))
        if verb == "load":
            return self.load(name, rest[0] == "shared", *map(int, rest[1:]))
        return "error\tunknown verb"

    def take(self, name, ttl, wait):
        lock = self.locks.make(name, ttl)
        if not self.locks.acquire(lock, wait):
            return "held"
        self.held[name] = lock
        return f"ok\t{now()}"

    def soak(self, name, counter, rounds, ttl, wait):
        for _ in range(rounds):
            lock = self.locks.make(name, ttl)
            if not self.locks.acquire(lock, wait):
                return "held"
            seen = int(self.locks.first.get(counter) or 0)
            time.sleep(0.001)
            self.locks.first.set(counter, seen + 1)
            if not self.locks.release(lock):
                return "lost"
        return f"ok\t{rounds}"

    def load(self, name, shared, workers, span, ttl):
        took, failures = [], []
        begin = time.perf_counter()

        def work(worker):
            own = name if shared else f"{name}-{worker:04}"
            try:
                while time.perf_counter() - begin < span / 1000:
                    lock = self.locks.make(own, ttl)
                    start = time.perf_counter()
                    if not self.locks.acquire(lock, 60_000):
                        raise TimeoutError("not within a minute")
                    took.append(int((time.perf_counter() - start) * 1e6))
                    if shared:
                        time.sleep(WORK)
                    self.locks.release(lock)
                    if shared:
                        time.sleep(PAUSE)
            except Exception as error:
                failures.append(repr(error))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            return f"error\t{failures[0]}"
        rate = len(took) / (time.perf_counter() - begin)
        took.sort()

        def part(of):
            return took[min(int(of * len(took)), len(took) - 1)]

        return f"ok\t{rate:.1f}\t{part(0.5)}\t{part(0.99)}\t{took[-1]}"


def run(locks):
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
    peer = Peer(locks)
    for line in sys.stdin:
        try:
            reply = peer.answer(*line.rstrip("\n").split("\t"))
        except Exception as error:  # whatever it is, the harness has to be told
            reply = "error\t" + " ".join(repr(error).split())
        print(reply)
