// node-redlock behind the line protocol of interop/README.md: version 5 (a beta that most use), or 4 (npm's latest).
'use strict';

const readline = require('node:readline');
const Redis = require('ioredis');

const [urls, variant = '5'] = process.argv.slice(2);
const clients = urls.split(',').map((url) => new Redis(url));
// It prints what nobody listens to.
clients.forEach((client) => client.on('error', () => {}));
const RETRY_MS = 200; // its default

const four = {
  Redlock: require('redlock4'),
  version: require('redlock4/package.json').version,
  lock: (redlock, name, ttl) => redlock.lock(name, ttl),
  release: (lock) => lock.unlock(),
};
const five = {
  Redlock: require('redlock5').default,
  version: require('node:fs').readFileSync(`${__dirname}/node_modules/redlock5/package.json`, 'utf8').match(/"version": "([^"]+)"/)[1],
  lock: (redlock, name, ttl) => redlock.acquire([name], ttl),
  release: (lock) => lock.release(),
};
const api = variant === '4' ? four : five;

/** A manager that tries for about this long. */
function manager(wait) {
  const redlock = new api.Redlock(clients, { retryCount: Math.ceil(wait / RETRY_MS), retryDelay: RETRY_MS });
  // Without a listener an error of one node would end the process.
  redlock.on('error', () => {});
  redlock.on('clientError', () => {});
  return redlock;
}

// What those do who load one lock together: under it, and behind it.
const WORK_MS = 1;
const PAUSE_MS = 5;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const held = new Map();
const now = () => Math.round((performance.timeOrigin + performance.now()) * 1000);

async function take(name, ttl, wait) {
  try {
    held.set(name, await api.lock(manager(wait), name, ttl));
    return `ok\t${now()}`;
  } catch (error) {
    return refusal(error);
  }
}

function refusal(error) {
  const isHeld = ['ExecutionError', 'ResourceLockedError', 'LockError'].includes(error.name);
  return isHeld ? 'held' : `error\t${String(error.message).replace(/\s+/g, ' ')}`;
}

async function soak(name, counter, rounds, ttl, wait) {
  const redlock = manager(wait);
  for (let round = 0; round < rounds; round++) {
    const lock = await api.lock(redlock, name, ttl);
    const seen = Number((await clients[0].get(counter)) ?? 0);
    await sleep(1);
    await clients[0].set(counter, seen + 1);
    await api.release(lock);
  }
  return `ok\t${rounds}`;
}

async function load(name, shared, workers, span, ttl) {
  const redlock = manager(60_000);
  const took = [];
  const begin = performance.now();
  const work = async (worker) => {
    const own = shared ? name : `${name}-${String(worker).padStart(4, '0')}`;
    while (performance.now() - begin < span) {
      const start = performance.now();
      const lock = await api.lock(redlock, own, ttl);
      took.push(Math.round((performance.now() - start) * 1000));
      if (shared) await sleep(WORK_MS);
      await api.release(lock);
      if (shared) await sleep(PAUSE_MS);
    }
  };
  await Promise.all(Array.from({ length: workers }, (_, worker) => work(worker)));
  const rate = took.length / ((performance.now() - begin) / 1000);
  took.sort((a, b) => a - b);
  const part = (of) => took[Math.min(Math.floor(of * took.length), took.length - 1)];
  return `ok\t${rate.toFixed(1)}\t${part(0.5)}\t${part(0.99)}\t${took.at(-1)}`;
}

async function answer([verb, name, ...rest]) {
  switch (verb) {
    case 'hello':
      return `ok\t${api.version}`;
    case 'try':
      return take(name, Number(rest[0]), 0);
    case 'lock':
      return take(name, Number(rest[0]), Number(rest[1]));
    case 'extend':
      try {
        held.set(name, await held.get(name).extend(Number(rest[0])));
        return `ok\t${now()}`;
      } catch {
        return 'lost';
      }
    case 'release': {
      const lock = held.get(name);
      held.delete(name);
      const begin = now();
      try {
        await api.release(lock);
        return `ok\t${begin}`;
      } catch {
        return 'lost';
      }
    }
    case 'soak':
      return soak(name, rest[0], ...rest.slice(1).map(Number));
    case 'load':
      return load(name, rest[0] === 'shared', ...rest.slice(1).map(Number));
    default:
      return 'error\tunknown verb';
  }
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const reply = await answer(line.split('\t')).catch(refusal);
    process.stdout.write(`${reply}\n`);
  }
  process.exit(0);
})();
