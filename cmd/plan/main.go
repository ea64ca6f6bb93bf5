package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	relocate()
	os.Exit(run())
}

// run is main without os.Exit, so that tests can call the program in their own
// process. The first interrupt cancels the context: long work stops and keeps
// what it found. The second ends the process at once.
func run() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
			return
		}
		select {
		case <-signals:
			os.Exit(exitInterrupted)
		case <-ctx.Done():
		}
	}()
	return execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
