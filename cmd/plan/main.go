package main

import (
	"context"
	"os"
)

func main() {
	relocate()
	os.Exit(run())
}

// run runs the program and returns its exit code. Tests call it in their own process.
func run() int {
	ctx, stop := interruptible(context.Background())
	defer stop()
	return executeCommand(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
