package main

import (
	"context"
	"os"
)

func main() {
	relocate()
	os.Exit(run())
}

// run is main without os.Exit, so that tests can call the program in their own
// process.
func run() int {
	ctx, stop := interruptible(context.Background())
	defer stop()
	return execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
