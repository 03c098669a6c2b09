package peer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson behind the line protocol of interop/README.md. A TTL of 0 leaves the lease to its watchdog. */
public final class Peer {
    /** The watchdog's lease; it renews at a third of it. */
    private static final long WATCHDOG_MS = 3_000;

    /** What those do who load one lock together: under it, and behind it. */
    private static final long WORK_MS = 1;
    private static final long PAUSE_MS = 5;

    private final List<RedissonClient> clients = new ArrayList<>();
    private final Map<String, RLock> held = new HashMap<>();
    private final String kind;

    private Peer(String urls, String kind) {
        this.kind = kind;
        for (String url : urls.split(",")) {
            Config config = new Config();
            config.setLockWatchdogTimeout(WATCHDOG_MS);
            config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(2);
            clients.add(Redisson.create(config));
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Peer peer = new Peer(args[0], args.length > 1 ? args[1] : "lock");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            String answer;
            try {
                answer = peer.answer(line.split("\t"));
            } catch (Exception error) {
                answer = "error\t" + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
            }
            out.println(answer);
        }
        // Its threads would keep the process alive for seconds.
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "hello":
                return "ok\t" + version();
            case "try":
                return take(words[1], Long.parseLong(words[2]), 0);
            case "lock":
                return take(words[1], Long.parseLong(words[2]), Long.parseLong(words[3]));
            case "extend":
                // RLock has no extend: its watchdog renews what was locked without a lease.
                return "unsupported";
            case "release":
                return release(words[1]);
            case "token":
                RLock lock = held.get(words[1]);
                return lock instanceof RFencedLock fenced ? "ok\t" + fenced.getToken() : "unsupported";
            case "soak":
                return soak(words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]),
                        Long.parseLong(words[5]));
            case "load":
                return load(words[1], words[2].equals("shared"), Integer.parseInt(words[3]),
                        Long.parseLong(words[4]), Long.parseLong(words[5]));
            default:
                return "error\tunknown verb";
        }
    }

    private RLock lock(String name) {
        if (clients.size() > 1) {
            return new RedissonRedLock(clients.stream().map(one -> one.getLock(name)).toArray(RLock[]::new));
        }
        RedissonClient client = clients.get(0);
        return switch (kind) {
            case "lock" -> client.getLock(name);
            case "fenced" -> client.getFencedLock(name);
            case "fair" -> client.getFairLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            default -> throw new IllegalArgumentException("no such kind: " + kind);
        };
    }

    private String take(String name, long ttl, long wait) throws InterruptedException {
        RLock lock = lock(name);
        if (!lock.tryLock(wait, ttl == 0 ? -1 : ttl, TimeUnit.MILLISECONDS)) {
            return "held";
        }
        held.put(name, lock);
        return "ok\t" + now();
    }

    private String release(String name) {
        RLock lock = held.get(name);
        if (lock == null) {
            return "lost";
        }
        long begin = now();
        try {
            lock.unlock();
        } catch (IllegalMonitorStateException notOurs) {
            held.remove(name);
            return "lost";
        }
        if (clients.size() > 1 || !lock.isHeldByCurrentThread()) {
            held.remove(name);
        }
        return "ok\t" + begin;
    }

    private String soak(String name, String counter, int rounds, long ttl, long wait) throws InterruptedException {
        var bucket = clients.get(0).<String>getBucket(counter, StringCodec.INSTANCE);
        for (int round = 0; round < rounds; round++) {
            RLock lock = lock(name);
            if (!lock.tryLock(wait, ttl, TimeUnit.MILLISECONDS)) {
                return "held";
            }
            String seen = bucket.get();
            Thread.sleep(1);
            bucket.set(String.valueOf((seen == null ? 0 : Long.parseLong(seen)) + 1));
            lock.unlock();
        }
        return "ok\t" + rounds;
    }

    private String load(String name, boolean shared, int workers, long span, long ttl) throws InterruptedException {
        List<Long> all = new ArrayList<>();
        List<String> failures = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        long begin = System.nanoTime();
        for (int worker = 0; worker < workers; worker++) {
            String own = shared ? name : String.format("%s-%04d", name, worker);
            Thread thread = new Thread(() -> {
                List<Long> took = new ArrayList<>();
                try {
                    while (System.nanoTime() - begin < span * 1_000_000) {
                        RLock lock = lock(own);
                        long start = System.nanoTime();
                        if (!lock.tryLock(60_000, ttl, TimeUnit.MILLISECONDS)) {
                            throw new IllegalStateException("not within a minute");
                        }
                        took.add((System.nanoTime() - start) / 1_000);
                        if (shared) {
                            Thread.sleep(WORK_MS);
                        }
                        lock.unlock();
                        if (shared) {
                            Thread.sleep(PAUSE_MS);
                        }
                    }
                } catch (Exception error) {
                    synchronized (all) {
                        failures.add(String.valueOf(error.getMessage()).replaceAll("\\s+", " "));
                    }
                }
                synchronized (all) {
                    all.addAll(took);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (!failures.isEmpty()) {
            return "error\t" + failures.get(0);
        }
        double rate = all.size() / ((System.nanoTime() - begin) / 1e9);
        all.sort(null);
        int last = all.size() - 1;
        return String.format(java.util.Locale.ROOT, "ok\t%.1f\t%d\t%d\t%d", rate,
                all.get(Math.min(all.size() / 2, last)), all.get(Math.min(all.size() * 99 / 100, last)), all.get(last));
    }

    private static long now() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    /** Redisson's jar does not tell its version by an API of its own. */
    private static String version() throws Exception {
        try (var in = Redisson.class.getResourceAsStream("/META-INF/maven/org.redisson/redisson/pom.properties")) {
            var properties = new java.util.Properties();
            properties.load(in);
            return properties.getProperty("version");
        }
    }
}
