// One stream of events for the whole page: snapshot first, then changes. fetch() rather than
// EventSource, which cannot send a token.

/**
 * @typedef {{ owner: string, session: string | null, token: number | null, since_ms: number,
 *   expires_at_ms: number | null, ttl_ms: number | null, max_hold_ms?: number, foreign: boolean }} Holder
 * @typedef {{ owner: string, session: string | null, since_ms: number, mode: string }} Waiter
 * @typedef {{ node: string, error?: string, holder: string | null, token: number | null,
 *   expires_at_ms: number | null, register: number, waiting: number, agrees: boolean }} Cell
 * @typedef {{ owner: string, token: number | null, since_ms: number, ended_ms: number, ended: string,
 *   next?: string, by?: string, reason?: string }} Past
 * @typedef {{ name: string, kind: string, of?: string, slot?: string, held: boolean | null,
 *   holder: Holder | null, readers?: Holder[], register: number, waiting: number, queue?: Waiter[],
 *   votes: number, answered: number, of_nodes: number, warnings?: string[], nodes?: Cell[],
 *   past?: Past[] }} Lock
 * @typedef {{ node: string, error?: string }} NodeState
 * @typedef {{ steps: { session: string, owner: string, lock: string }[] }} Cycle
 * @typedef {{ principal: string, may_steal: boolean, may_see_nodes: boolean,
 *   read_only: boolean }} You
 * @typedef {{ event: string, at_ms: number, name?: string, node?: string, owner?: string,
 *   token?: number, held_ms?: number, waited_ms?: number, left_ms?: number, next?: string,
 *   by?: string, reason?: string, seen_by?: string[] }} Happened
 */

const TOKEN = "fencepost-token";
const RETRY_MS = 1000;
/** For so long the stream is read before whatever else the page has to do gets its turn. */
const SLICE_MS = 10;

/** @returns {Record<string, string>} */
function authorization() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** @param {string} token */
export function logIn(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** Whether this page shows a token with its requests. */
export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

/** What the service refused, in its own words. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {any} problem
   */
  constructor(status, problem) {
    super(problem?.detail ?? `the service answered ${status}`);
    this.status = status;
    this.code = problem?.code ?? "";
  }
}

/**
 * One request.
 * @param {string} path
 * @param {unknown} [body] to be posted
 * @returns {Promise<any>}
 */
export async function ask(path, body) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json", ...authorization() };
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const json = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, json);
  return json;
}

/**
 * A stream that comes back by itself. The callbacks get each event, and each change of its state.
 * @param {string} path
 * @param {(event: string, data: any) => void} on
 * @param {(state: "open" | "lost" | "unauthenticated" | "forbidden", why: string) => void} onState
 * @returns {() => void} ends it
 */
export function stream(path, on, onState) {
  const ended = new AbortController();
  (async () => {
    while (!ended.signal.aborted) {
      try {
        const answer = await fetch(path, {
          headers: { accept: "text/event-stream", ...authorization() },
          signal: ended.signal,
        });
        if (!answer.ok || !answer.body) {
          const problem = await answer.json().catch(() => null);
          throw new Refused(answer.status, problem);
        }
        onState("open", "");
        await read(answer.body, (event, data) => {
          ended.signal.throwIfAborted();
          if (event === "closing" && data.code === "unauthenticated") throw new Refused(401, data);
          on(event, data);
        });
        onState("lost", "the stream ended");
      } catch (error) {
        if (ended.signal.aborted) return;
        if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
          onState(error.status === 401 ? "unauthenticated" : "forbidden", error.message);
          return;
        }
        onState("lost", error instanceof Error ? error.message : String(error));
      }
      await new Promise((wake) => setTimeout(wake, RETRY_MS));
    }
  })();
  return () => ended.abort();
}

/**
 * Line by line, so that nothing is searched twice however large an event is, and in slices: what has
 * piled up while the page was busy is not read at one stretch.
 * @param {ReadableStream<Uint8Array>} body
 * @param {(event: string, data: any) => void} on
 */
async function read(body, on) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let [line, event, data, began] = ["", "message", "", performance.now()];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = decoder.decode(value, { stream: true }).split("\n");
      lines[0] = line + lines[0];
      line = lines.pop() ?? "";
      for (const it of lines) {
        if (it.startsWith("event: ")) event = it.slice(7);
        else if (it.startsWith("data: ")) data = it.slice(6);
        if (it) continue;
        // An empty line ends an event.
        if (data) on(event, JSON.parse(data));
        [event, data] = ["message", ""];
        // Timers of a hidden page are slow, and it has nothing else to do.
        if (performance.now() - began > SLICE_MS && !document.hidden) {
          await new Promise((wake) => setTimeout(wake));
          began = performance.now();
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Acts when it is called, but never twice at once and not more often than that; the last call is never lost.
 * @param {number} pauseMs
 * @param {() => Promise<void>} act
 * @returns {() => void}
 */
export function paced(pauseMs, act) {
  let [running, wanted, waiting, last] = [false, false, false, 0];
  const call = () => {
    wanted = true;
    if (running || waiting) return;
    waiting = true;
    setTimeout(async () => {
      [running, wanted, waiting, last] = [true, false, false, Date.now()];
      try {
        await act();
      } finally {
        running = false;
        if (wanted) call();
      }
    }, Math.max(0, last + pauseMs - Date.now()));
  };
  return call;
}

/** What the timeline keeps. */
const NOTABLE = ["lost", "expired", "stolen", "near_miss", "node_down", "node_up", "quarantined", "voting"];

/** All that the stream of all locks has told. */
export class Live {
  constructor() {
    /** @type {Map<string, Lock>} */
    this.locks = new Map();
    /** @type {NodeState[] | null} */
    this.nodes = null;
    /** @type {Cycle[]} */
    this.cycles = [];
    /** @type {You | null} */
    this.you = null;
    /** When the nodes were last asked, by this browser's clock, and how long that took. */
    this.seenAt = 0;
    this.tookMs = 0;
    /** By how much the service's clock is ahead of this browser's. */
    this.ahead = 0;
    /** Counts changes, so that a view knows whether to sort anew. */
    this.version = 0;
    /** Counts what the timeline keeps, so that it is asked only when it has something new. */
    this.notable = 0;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
  }

  /** Now, by the service's clock. */
  now() {
    return Date.now() + this.ahead;
  }

  /**
   * @param {string} event
   * @param {any} data
   */
  take(event, data) {
    if (typeof data.at_ms === "number" && ["snapshot", "locks", "heartbeat"].includes(event)) {
      // A heartbeat tells of a look that was a while ago.
      if (event !== "heartbeat") this.ahead = data.at_ms - Date.now();
      this.seenAt = data.at_ms - this.ahead;
      this.tookMs = data.took_ms ?? 0;
    }
    if (event === "snapshot") {
      this.locks = new Map(data.locks.map((/** @type {Lock} */ lock) => [lock.name, lock]));
      this.you = data.you;
      this.nodes = data.nodes;
      this.cycles = data.cycles;
    } else if (event === "locks") {
      for (const lock of data.changed) this.locks.set(lock.name, lock);
      for (const name of data.removed) this.locks.delete(name);
      if (data.nodes !== undefined) this.nodes = data.nodes;
      if (data.cycles !== undefined) this.cycles = data.cycles;
    } else if (NOTABLE.includes(event)) {
      this.notable += 1;
    } else {
      return;
    }
    this.version += 1;
    for (const listener of this.listeners) listener();
  }
}
