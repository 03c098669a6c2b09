"""pottery's Redlock behind the line protocol of interop/README.md. Its key for NAME is `redlock:NAME`."""

import sys
from importlib.metadata import version

import lines
from pottery import ExtendUnlockedLock, Redlock, ReleaseUnlockedLock, TooManyExtensions
from redis import Redis


class Locks:
    version = version("pottery")

    def __init__(self, urls):
        # It logs each refusal and each extension.
        import logging

        logging.disable(logging.CRITICAL)
        masters = [Redis.from_url(url) for url in urls.split(",")]
        self.first = masters[0]
        self.masters = set(masters)

    def make(self, name, ttl):
        return Redlock(key=name, masters=self.masters, auto_release_time=ttl / 1000)

    def acquire(self, lock, wait):
        if wait == 0:
            return lock.acquire(blocking=False)
        return lock.acquire(timeout=wait / 1000)

    def extend(self, lock, ttl):
        try:
            lock.extend()
            return True
        except (ExtendUnlockedLock, TooManyExtensions):
            return False

    def release(self, lock):
        try:
            lock.release()
            return True
        except ReleaseUnlockedLock:
            return False


lines.run(Locks(sys.argv[1]))
