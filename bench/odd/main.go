package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inferplan/bench/instrument"
	"inferplan/testkit/mutant"
)

// What a search may take.
const (
	mostCPU    = 20.0 // seconds
	mostMemory = 1024 // MiB
	mostAfter  = 1.0  // seconds of CPU to the end, after Ctrl-C
)

// worthCut is the least wall time of a search that is interrupted.
const worthCut = 300 * time.Millisecond

// bench holds the seeds of the problems.
type bench struct{ first, last uint64 }

func main() {
	b := &bench{}
	columns := []string{"seed", "problem", "flags", "exit code", "CPU s", "MiB", "CPU s after Ctrl-C", "exit code then", "last line"}
	instrument.Main(&instrument.Instrument{
		Name: "odd", Strict: true,
		Parts: []instrument.Part{{Name: "odd", Title: "Searches that fail or pass a limit", Columns: columns, Measure: b.odd}},
		Flags: func(f *flag.FlagSet) {
			f.Uint64Var(&b.first, "first", 1, "seed of the first problem")
			f.Uint64Var(&b.last, "last", 300, "seed of the last problem")
		},
	})
}

// search holds the runs of plan solve on a problem: one to the end, and one that was interrupted if the first took long enough.
type search struct {
	*mutant.Odd
	flags             []string
	complete, stopped *usage
}

// solve solves a problem.
func solve(ctx context.Context, problem *mutant.Odd) (*search, error) {
	dir, err := os.MkdirTemp("", "odd-")
	if err != nil {
		return nil, fmt.Errorf("a folder for documents: %w", err)
	}
	defer os.RemoveAll(dir)
	s := &search{Odd: problem}
	for _, name := range slices.Sorted(maps.Keys(problem.Options)) {
		s.flags = append(s.flags, "--"+name, fmt.Sprint(problem.Options[name]))
	}
	args := append([]string{"solve", "-o", filepath.Join(dir, "plan.json"), "--force"}, s.flags...)
	for role, tree := range problem.Documents {
		text, err := json.Marshal(tree)
		if err != nil {
			return nil, fmt.Errorf("seed %d, %s: %w", problem.Seed, role, err)
		}
		path := filepath.Join(dir, role+".json")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, fmt.Errorf("writing a document: %w", err)
		}
		args = append(args, "--"+role, path)
	}
	if s.complete, err = run(ctx, args, time.Hour); err != nil || s.complete.wall < worthCut {
		return s, err
	}
	moment := rand.New(rand.NewPCG(problem.Seed, 8)).Float64() * float64(s.complete.wall)
	s.stopped, err = run(ctx, args, time.Duration(moment))
	return s, err
}

// failed returns whether a search ended with an exit code that says neither that there is a plan or none, nor that the input is bad,
// nor that it was interrupted.
func (s *search) failed() bool {
	return !slices.Contains([]int{0, 2, 3}, s.complete.code) || s.stopped != nil && !slices.Contains([]int{0, 2, 3, codeInterrupted}, s.stopped.code)
}

// odd solves the problems.
func (b *bench) odd(r *instrument.Run, t *instrument.Table) error {
	problems, err := mutant.Problems(".")
	if err != nil {
		return err
	}
	list := make([]*search, b.last-b.first+1)
	if err := r.ForEach(len(list), func(ctx context.Context, i int) (err error) {
		list[i], err = solve(ctx, mutant.DrawOdd(problems, b.first+uint64(i)))
		fmt.Fprintf(r.Log, "seed %d\n", b.first+uint64(i))
		return err
	}); err != nil {
		return err
	}
	var cpu, memory, after, failures float64
	plans, numStopped := 0, 0
	for _, s := range list {
		cpu, memory = max(cpu, s.complete.cpu), max(memory, s.complete.memory)
		if s.complete.code == 0 {
			plans++
		}
		stopped := &usage{}
		if s.stopped != nil && s.stopped.code == codeInterrupted {
			stopped = s.stopped
			after = max(after, stopped.after)
			numStopped++
		}
		if s.failed() {
			failures++
		}
		if s.failed() || s.complete.cpu > mostCPU || s.complete.memory > mostMemory || stopped.after > mostAfter {
			t.Add(s.Seed, s.Kind+": "+strings.Join(s.What, ", "), strings.Join(s.flags, " "), s.complete.code, s.complete.cpu, s.complete.memory, stopped.after, stopped.code, s.complete.last+" "+stopped.last)
		}
	}
	const source = "drawn problems of all kinds that are tiny, huge, equal or one too many"
	r.AtMost("odd problems: most CPU that a search takes, s", source, mostCPU, "", cpu).Note = fmt.Sprintf("%d problems, %d with a plan", len(list), plans)
	r.AtMost("odd problems: most memory, MiB", source, mostMemory, "", memory)
	r.AtMost("odd problems: most CPU from Ctrl-C to the end, s", source, mostAfter, "", after).Note = fmt.Sprintf("%d were interrupted", numStopped)
	r.Exactly("odd problems that end with an exit code of a failure", source, 0, "", failures)
	return nil
}
