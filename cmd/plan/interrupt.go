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

// interruptHandling is set from when on the verb ends well by itself after its context is cancelled.
type interruptHandling struct{ set atomic.Bool }

type heedsKey struct{}

// signalWindow is the time within which several signals count as one.
const signalWindow = time.Second

// interruptible returns a context. After endsWellOnInterrupt was called, Ctrl-C and SIGTERM cancel it: long work
// then stops and keeps its results. A second signal ends the process at once, unless it arrives within
// signalWindow: timeout(1), make and npm send their children what the whole process group has received. Before the
// call there is nothing to keep (documents are read, maybe from a pipe that nobody writes to), and the first
// signal ends the process.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	state := &interruptHandling{}
	ctx, cancel := context.WithCancel(context.WithValue(parent, heedsKey{}, state))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var firstSignal time.Time
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
			case firstSignal.IsZero():
				firstSignal = time.Now()
				cancel()
			case time.Since(firstSignal) > signalWindow:
				os.Exit(exitInterrupted)
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// interruptGrace is the time that interrupted work may take to end well.
const interruptGrace = 800 * time.Millisecond

// withGrace returns a context that ends interruptGrace after ctx. The caller calls stop when the work is done.
func withGrace(ctx context.Context) (grace context.Context, stop func()) {
	grace, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unregister := context.AfterFunc(ctx, func() { time.AfterFunc(interruptGrace, cancel) })
	return grace, func() { unregister(); cancel() }
}

// endsWellOnInterrupt says that from now on the verb ends well by itself when its context is cancelled.
func endsWellOnInterrupt(ctx context.Context) {
	if state, ok := ctx.Value(heedsKey{}).(*interruptHandling); ok {
		state.set.Store(true)
	}
}
