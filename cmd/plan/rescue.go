package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"inferplan/engine/worker"
	"inferplan/executor/durable"
	"inferplan/executor/durable/bolt"
	"inferplan/formats/usage"
)

// newRescueCommand makes the verb rescue, which copies the readable requests of a damaged queue file into a new file.
func newRescueCommand(g *globalFlags) *cobra.Command {
	var out, key string
	cmd := &cobra.Command{
		Use:   "rescue FILE -o FILE",
		Short: "Read out what is left of a damaged file of requests",
		Long: `Copy what can be read of a damaged file of accepted requests (plan serve --queue) into a new one.

Requests without an answer are open in the copy: plan serve --queue with it answers them. The damaged file
stays as it is. No process may have it open.

Exit code 0: all could be read; 1: part of the file is lost, the rest is copied; 5: nothing can be read.`,
		Example: `  plan rescue requests.db -o left.db
  plan rescue requests.db -o left.db --queue-key key.txt --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runRescue(newPrinter(cmd, g), args[0], out, key)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "file to write, which must not be there")
	f.StringVar(&key, "queue-key", "", "file with the key that encrypts what is kept")
	return cmd
}

// runRescue copies the readable requests of the file source to the new file to. key is the file with the key that
// encrypts them, or "". If part is lost, it returns an error with the exit code of a gate.
func runRescue(p *printer, source, to, key string) error {
	if to == "" || to == toStdout {
		return usageErrorf("-o: expected the file to write, which is none of text")
	}
	if _, err := os.Stat(source); err != nil {
		return withCode(exitUsage, err)
	}

	// Read the queue's key.
	var sealer *durable.Sealer
	if key != "" {
		data, err := worker.ReadSecret(key)
		if err == nil {
			sealer, err = durable.NewSealer(data)
		}
		if err != nil {
			return usageErrorf("--queue-key %s: %w", key, err)
		}
	}

	// Copy what can be read, and print how much that is.
	r, err := bolt.Rescue(source, to, bolt.Options{Sealer: sealer, Log: p.logger()})
	switch {
	case errors.Is(err, bolt.ErrDamaged):
		return withCode(exitEnvironment, err)
	case err != nil:
		return usage.MarkWriting(err)
	}
	if p.json {
		err = p.PrintJSON(r)
	} else {
		_, err = fmt.Fprintf(p.out, "%d requests, %d of them open, and %d pieces of files and batches\n", r.Records, r.Open, r.Values)
	}
	if err == nil && r.Partial {
		p.PrintNote("part of %s could not be read and is not in %s", source, to)
		return &exitError{code: exitGate}
	}
	return err
}
