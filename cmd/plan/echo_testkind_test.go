//go:build testkind

package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"inferplan/policy"
	"inferplan/policy/conform"
)

// A kind of plan that was added by new files and one line per table has flags,
// validation, solve, refusal, check, explain and diff. It simulates and serves with
// a policy that uses all of the contract.
func TestEcho(t *testing.T) {
	p := scripts("testdata/testkind")
	p.Cmds["heard"] = heard
	testscript.Run(t, p)
}

// heard requires that a log has every kind of event and action that requests of
// several tasks bring about. With dropped it also has drops of requests whose
// tasks are in batches.
func heard(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 || len(args) == 2 && args[1] != "dropped" {
		ts.Fatalf("usage: heard LOG [dropped]")
	}
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	log, err := conform.OpenLog(f)
	ts.Check(err)
	c := census{requests: map[int32]int32{}, batches: map[int32][]int32{}}
	for {
		call, err := log.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		ts.Check(err)
		ts.Check(c.add(&call))
	}
	ts.Logf("%s: %+v", args[0], c.counts)
	for _, k := range []policy.EventKind{policy.Arrival, policy.TaskRevealed, policy.ControlRevealed, policy.BatchStarted, policy.TokenProgress,
		policy.BatchReturned, policy.BatchFinished, policy.TransferFinished, policy.NetworkLoaded, policy.ReplanResult, policy.Timer} {
		if c.events[k] == 0 {
			ts.Fatalf("%s: no event %s", args[0], k)
		}
	}
	for _, k := range []policy.ActionKind{policy.Dispatch, policy.Load, policy.Unload, policy.Evict, policy.Place, policy.Replan, policy.Wake} {
		if c.actions[k] == 0 {
			ts.Fatalf("%s: no action %s", args[0], k)
		}
	}
	if c.fanOuts == 0 || c.merges == 0 || len(args) == 2 && c.dropped == 0 {
		ts.Fatalf("%s: %+v: expected fan-outs and merges, and drops where asked for", args[0], c.counts)
	}
}

// census counts what is in a log, and keeps where tasks are.
type census struct {
	counts
	requests map[int32]int32   // by task
	batches  map[int32][]int32 // tasks
}

type counts struct {
	events  [policy.NumEvents]int
	actions [policy.NumActions]int
	fanOuts int // several tasks revealed at once
	merges  int // tasks that read several others
	dropped int // requests with tasks in batches
}

func (c *census) add(call *conform.Call) error {
	ev := &call.Event
	c.events[ev.Kind]++
	switch ev.Kind {
	case policy.TaskRevealed:
		c.requests[ev.Task] = ev.Req
		if len(ev.List) > 1 {
			c.merges++
		}
	case policy.ControlRevealed:
		if ev.Value > 1 {
			c.fanOuts++
		}
	case policy.BatchFinished, policy.BatchReturned:
		delete(c.batches, ev.Batch)
	}
	var out policy.Actions
	if err := policy.DecodeActions(call.Actions, &out); err != nil {
		return err
	}
	for i := range out.List {
		a := &out.List[i]
		c.actions[a.Kind]++
		switch a.Kind {
		case policy.Dispatch:
			tasks, _ := out.BatchOf(a)
			c.batches[a.Batch] = slices.Clone(tasks)
		case policy.Abort:
			delete(c.batches, a.Batch)
		case policy.Drop:
			for _, tasks := range c.batches {
				if slices.ContainsFunc(tasks, func(t int32) bool { return c.requests[t] == a.Req }) {
					c.dropped++
					break
				}
			}
		}
	}
	return nil
}
