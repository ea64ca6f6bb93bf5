package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// heeds is set once a verb ends well by itself when its context is cancelled.
type heeds struct{ set atomic.Bool }

type heedsKey struct{}

// together is the time within which several signals are one.
const together = time.Second

// interruptible returns a context that Ctrl-C and SIGTERM cancel, once heed was
// called: long work then stops and keeps what it found, and a second signal ends
// the process at once, unless it comes with the first: timeout(1), make and npm
// pass on to their children what the whole process group was sent. Before, there is nothing to keep: documents are read, from
// a pipe that nobody may ever write to, and the first signal ends the process.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	state := &heeds{}
	ctx, cancel := context.WithCancel(context.WithValue(parent, heedsKey{}, state))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var first time.Time
		for {
			select {
			case <-signals:
			case <-parent.Done():
				return
			}
			switch {
			case !state.set.Load():
				fmt.Fprintln(os.Stderr, "plan: interrupted; nothing was written")
				os.Exit(exitInterrupted)
			case first.IsZero():
				first = time.Now()
				cancel()
			case time.Since(first) > together:
				os.Exit(exitInterrupted)
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// endsWellOnInterrupt tells that from here on the verb ends well when its context is cancelled.
func endsWellOnInterrupt(ctx context.Context) {
	if state, ok := ctx.Value(heedsKey{}).(*heeds); ok {
		state.set.Store(true)
	}
}
