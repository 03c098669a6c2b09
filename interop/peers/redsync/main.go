// redsync behind the line protocol of interop/README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	lockpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// As often as the time allows: the context ends the wait, not the number of tries.
const tries = 1 << 30

// What those do who load one lock together: under it, and behind it.
const (
	work  = time.Millisecond
	pause = 5 * time.Millisecond
)

type peer struct {
	locks *redsync.Redsync
	first *redis.Client
	held  map[string]*redsync.Mutex
}

func main() {
	p := peer{held: map[string]*redsync.Mutex{}}
	var pools []lockpool.Pool
	for _, url := range strings.Split(os.Args[1], ",") {
		options, err := redis.ParseURL(url)
		if err != nil {
			panic(err)
		}
		options.PoolSize = 128
		client := redis.NewClient(options)
		if p.first == nil {
			p.first = client
		}
		pools = append(pools, goredis.NewPool(client))
	}
	p.locks = redsync.New(pools...)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(p.answer(strings.Split(lines.Text(), "\t")))
	}
}

func (p *peer) answer(words []string) string {
	switch words[0] {
	case "hello":
		return "ok\t" + version()
	case "try":
		return p.take(words[1], millis(words[2]), 0)
	case "lock":
		return p.take(words[1], millis(words[2]), millis(words[3]))
	case "extend":
		mutex := p.held[words[1]]
		if mutex == nil {
			return "lost"
		}
		if ok, err := mutex.Extend(); !ok || err != nil {
			return "lost"
		}
		return "ok\t" + now()
	case "release":
		mutex := p.held[words[1]]
		if mutex == nil {
			return "lost"
		}
		delete(p.held, words[1])
		begin := now()
		if ok, err := mutex.Unlock(); !ok || err != nil {
			return "lost"
		}
		return "ok\t" + begin
	case "soak":
		return p.soak(words[1], words[2], number(words[3]), millis(words[4]), millis(words[5]))
	case "load":
		return p.load(words[1], words[2] == "shared", number(words[3]), millis(words[4]), millis(words[5]))
	}
	return "error\tunknown verb"
}

func (p *peer) mutex(name string, ttl time.Duration) *redsync.Mutex {
	return p.locks.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(tries))
}

func (p *peer) take(name string, ttl, wait time.Duration) string {
	mutex := p.mutex(name, ttl)
	if err := acquire(mutex, wait); err != nil {
		return refusal(err)
	}
	p.held[name] = mutex
	return "ok\t" + now()
}

func acquire(mutex *redsync.Mutex, wait time.Duration) error {
	if wait == 0 {
		return mutex.TryLock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return mutex.LockContext(ctx)
}

func refusal(err error) string {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return "held"
	}
	return "error\t" + strings.ReplaceAll(err.Error(), "\n", " ")
}

func (p *peer) soak(name, counter string, rounds int, ttl, wait time.Duration) string {
	ctx := context.Background()
	for range rounds {
		mutex := p.mutex(name, ttl)
		if err := acquire(mutex, wait); err != nil {
			return refusal(err)
		}
		seen, err := p.first.Get(ctx, counter).Int()
		if err != nil && err != redis.Nil {
			return "error\t" + err.Error()
		}
		time.Sleep(time.Millisecond)
		if err := p.first.Set(ctx, counter, seen+1, 0).Err(); err != nil {
			return "error\t" + err.Error()
		}
		if ok, err := mutex.Unlock(); !ok || err != nil {
			return "lost"
		}
	}
	return fmt.Sprintf("ok\t%d", rounds)
}

func (p *peer) load(name string, shared bool, workers int, span, ttl time.Duration) string {
	var all []int64
	var guard sync.Mutex
	var group sync.WaitGroup
	var failure string
	begin := time.Now()
	for worker := range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			lock := name
			if !shared {
				lock = fmt.Sprintf("%s-%04d", name, worker)
			}
			var took []int64
			for time.Since(begin) < span {
				mutex := p.mutex(lock, ttl)
				start := time.Now()
				if err := acquire(mutex, time.Minute); err != nil {
					failure = err.Error()
					return
				}
				took = append(took, time.Since(start).Microseconds())
				if shared {
					time.Sleep(work)
				}
				_, _ = mutex.Unlock()
				if shared {
					time.Sleep(pause)
				}
			}
			guard.Lock()
			all = append(all, took...)
			guard.Unlock()
		}()
	}
	group.Wait()
	if failure != "" {
		return "error\t" + failure
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	part := func(of float64) int64 { return all[min(int(of*float64(len(all))), len(all)-1)] }
	rate := float64(len(all)) / time.Since(begin).Seconds()
	return fmt.Sprintf("ok\t%.1f\t%d\t%d\t%d", rate, part(0.5), part(0.99), all[len(all)-1])
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "github.com/go-redsync/redsync/v4" {
			return dep.Version
		}
	}
	return "unknown"
}

func now() string { return strconv.FormatInt(time.Now().UnixMicro(), 10) }

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func millis(text string) time.Duration { return time.Duration(number(text)) * time.Millisecond }
