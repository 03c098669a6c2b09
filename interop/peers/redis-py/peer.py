"""redis-py's Lock behind the line protocol of interop/README.md. It knows one server only."""

import sys

import lines
import redis
from redis.exceptions import LockError


class Locks:
    version = redis.__version__

    def __init__(self, urls):
        self.first = redis.Redis.from_url(urls.split(",")[0])

    def make(self, name, ttl):
        return self.first.lock(name, timeout=ttl / 1000, thread_local=False)

    def acquire(self, lock, wait):
        if wait == 0:
            return lock.acquire(blocking=False)
        return lock.acquire(blocking_timeout=wait / 1000)

    def extend(self, lock, ttl):
        try:
            return lock.extend(ttl / 1000, replace_ttl=True)
        except LockError:
            return False

    def release(self, lock):
        try:
            lock.release()
            return True
        except LockError:
            return False


lines.run(Locks(sys.argv[1]))
