package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"inferplan/bench/table"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-plans:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bench-plans", flag.ContinueOnError)
	data := f.String("data", "../shared/data", "folder that holds ppipe/")
	only := f.String("only", "", "regular expression of set/case")
	against := f.String("against", "", "file that an earlier run kept: compare")
	file := f.String("keep", "", "file to keep what plans state, for -against")
	verbose := f.Bool("v", false, "a line for each case")
	if err := f.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var before map[string]record
	if *against != "" {
		if before, err = readRecords(*against); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "plans-")
	if err != nil {
		return fmt.Errorf("a folder for measured rates: %w", err)
	}
	defer os.RemoveAll(dir)
	all, err := cases(*data, dir)
	if err != nil {
		return err
	}
	var list []record
	for i := range all {
		if !wanted.MatchString(all[i].set + "/" + all[i].Name) {
			continue
		}
		r, err := solve(ctx, &all[i])
		if err != nil {
			return err
		}
		if *verbose {
			fmt.Fprintf(os.Stderr, "%s/%s: %.8g in %.2f s\n", r.Set, r.Case, r.Value, r.Seconds)
		}
		list = append(list, *r)
	}
	if *file != "" {
		if err := keepRecords(*file, list); err != nil {
			return err
		}
	}
	t := &table.Table{}
	complaints := judge(before, list, t)
	if err := t.Markdown(os.Stdout); err != nil {
		return err
	}
	if complaints > 0 {
		return fmt.Errorf("%d cases are worse than before", complaints)
	}
	return nil
}
