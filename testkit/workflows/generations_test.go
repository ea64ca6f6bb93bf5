package workflows_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/bench/dyorc/baselines"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/policy/workflow"
	"inferplan/sim"
	"inferplan/testkit/policytest"
	"inferplan/testkit/workflows"
)

// sequences holds what a policy does with the sequences of a fleet against the contract:
// a device runs one service at a time, no more sequences than it may, and every one ends
// once.
type sequences struct {
	policy.Policy
	t       *policy.Tables
	running map[int32]int32 // service by batch
	on      map[int32]int32 // device by batch
	most    int
	started int
	ended   int
	asked   int64 // tokens
	err     error
}

func (s *sequences) Unwrap() policy.Policy { return s.Policy }

func (s *sequences) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Kind == policy.BatchFinished {
		if _, ok := s.running[ev.Batch]; !ok {
			s.fail("batch %d ends a second time", ev.Batch)
		}
		s.gone(ev.Batch)
		s.ended++
	}
	s.Policy.Handle(now, ev, out)
	for i := range out.List {
		switch a := &out.List[i]; a.Kind {
		case policy.Abort:
			s.gone(a.Batch)
			s.started--
		case policy.Dispatch:
			s.dispatched(a)
		case policy.Unload:
			for b, d := range s.on {
				if d == a.Device && a.Network >= 0 && s.t.Pipelines[s.t.Services[s.running[b]].FirstPipeline].Network == a.Network {
					s.fail("network %d is unloaded from device %d, where it runs", a.Network, d)
				}
			}
		}
	}
}

func (s *sequences) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *sequences) gone(batch int32) {
	delete(s.running, batch)
	delete(s.on, batch)
}

func (s *sequences) dispatched(a *policy.Action) {
	service, n := s.t.Pipelines[a.Pipeline].Service, 1
	own := flow.WorkflowTablesOf(s.t)
	for b, d := range s.on {
		if d == a.Device {
			if s.running[b] != service || own.LanguageModelOf(service) == nil {
				s.fail("device %d runs service %d, and is to run %d", d, s.running[b], service)
			}
			n++
		}
	}
	if g := own.LanguageModelOf(service); g != nil && (a.Size != 1 || n > int(g.Engines[0].MaxSequences)) {
		s.fail("device %d is to run %d sequences, of which one is a batch of %d", a.Device, n, a.Size)
	}
	s.running[a.Batch], s.on[a.Batch] = service, a.Device
	s.started++
	s.most = max(s.most, n)
}

// generate runs all applications on a fleet of language models.
func generate(t interface{ Fatal(...any) }, f workflows.Fleet, name string, seed uint64, rps, spread float64, faults ...sim.Fault) (*sequences, *sim.Result, int) {
	opt, err := baselines.Named(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.Generations = true
	tab := f.Tables()
	p := &sequences{Policy: workflow.New(tab, opt), t: tab, running: map[int32]int32{}, on: map[int32]int32{}}
	answered := 0
	apps := workflows.NewApps(seed)
	apps.Tokens = workflows.NewTokens(seed, spread)
	res, err := sim.Run(context.Background(), sim.Config{
		Tables: tab, Policy: p, Source: poisson(rps, 90*time.Second, seed), Verify: true, NoReport: true, Faults: faults,
		Control: &workflows.Control{Draw: func(model int32, w *workflows.Way) {
			apps.Draw(model, w)
			for _, k := range w.Tasks[:w.Len()] {
				p.asked += int64(k.Output)
			}
		}}, MoveTime: workflows.Move(tab),
		OnCompleted: func(_, _ time.Duration) { answered++ },
	})
	if err != nil {
		t.Fatal(name, err)
	}
	if p.err != nil {
		t.Fatal(name, p.err)
	}
	return p, res, answered
}

// Whatever policy, load, memory and lengths there are: every sequence ends once, a device
// runs one service at a time and drains before it unloads, and KV memory is never
// exceeded. What is done is what was asked: work is conserved.
func TestSequences(t *testing.T) {
	joined := 0
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(baselines.Names()).Draw(t, "policy")
		f := workflows.Fleet{Devices: rapid.IntRange(1, 5).Draw(t, "devices"), Gigabytes: rapid.SampledFrom([]float64{17, 24, 40}).Draw(t, "memory"), PerNode: 2}
		if f.Session.Bytes = rapid.SampledFrom([]int64{0, 1 << 26}).Draw(t, "state"); f.Session.Bytes > 0 {
			f.Session.Recompute, f.Session.SameNode, f.Session.OtherNode = 100*time.Millisecond, 5*time.Millisecond, 20*time.Millisecond
		}
		if name == "static" || name == "static-edf" {
			f.Resident = [][]int32{{workflows.LLM}}
		}
		p, res, _ := generate(t, f, name, rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]float64{.05, .2, .5}).Draw(t, "rps"), rapid.SampledFrom([]float64{0, 1}).Draw(t, "spread"))
		if p.started != p.ended || len(p.running) > 0 {
			t.Fatalf("%s: %d batches begin, %d end", name, p.started, p.ended)
		}
		joined = max(joined, p.most)
		made := int64(0)
		for i := range res.Generation.Models {
			m := &res.Generation.Models[i]
			if m.PeakKV > m.KV {
				t.Fatalf("%s: %s holds %d of %d tokens", name, m.Name, m.PeakKV, m.KV)
			}
			made += m.MadeTokens
		}
		if opt, _ := baselines.Named(name, 1); made > p.asked || made < p.asked && opt.GiveUp == workflow.GiveUpNever {
			t.Fatalf("%s: %d tokens were made, %d asked for", name, made, p.asked)
		}
	})
	if joined < 8 {
		t.Errorf("at most %d sequences ran at once", joined)
	}
}

// Devices that are lost and come back lose no request.
func TestSequencesOfLostDevices(t *testing.T) {
	for _, name := range baselines.Names() {
		if p, _, n := generate(t, workflows.Fleet{Devices: 4, Gigabytes: 24, PerNode: 2}, name, 1, .3, .5, lost...); n < 50 || p.started < p.ended {
			t.Errorf("%s: %d answers, %d batches begin, %d end", name, n, p.started, p.ended)
		}
	}
}

// A sequence alone takes what a batch of one takes in the fixed form, and what the policy
// expects of it.
func TestASequenceAlone(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		f := workflows.Fleet{Devices: 1, Gigabytes: 80, Resident: [][]int32{{workflows.ViT, workflows.OPT, workflows.SD, workflows.LLM}}}
		if sessions {
			f.Session = flow.SessionState{Bytes: 1 << 27, Recompute: 100 * time.Millisecond}
		}
		took := map[bool][]time.Duration{}
		for _, generations := range []bool{false, true} {
			f.Generations = generations
			tab := f.Tables()
			apps := workflows.NewApps(3)
			apps.Tokens = workflows.NewTokens(3, 0)
			alone := &punctual{Policy: workflow.New(tab, workflow.Options{}), ends: map[int32]time.Duration{}}
			list := make([]arrivals.Request, 20) // each long after the one before
			for i := range list {
				list[i] = arrivals.Request{ArrivedAt: time.Duration(i) * time.Minute, Model: workflows.KnowledgeCard, SLO: time.Minute}
			}
			_, err := sim.Run(context.Background(), sim.Config{
				Tables: tab, Policy: alone, Source: arrivals.Slice(list), NoReport: true, Verify: true,
				Control: &workflows.Control{Draw: apps.Draw}, MoveTime: workflows.Move(tab),
				OnCompleted: func(at, answered time.Duration) { took[generations] = append(took[generations], answered-at) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if generations && alone.off > 2*time.Millisecond { // of the quarter of a task, by work
				t.Errorf("a sequence ends %v from what was expected", alone.off)
			}
		}
		for i := range took[true] {
			if a, b := took[true][i].Seconds(), took[false][i].Seconds(); math.Abs(a/b-1) > .01 {
				t.Errorf("request %d takes %v s, in the fixed form %v s", i, a, b)
			}
		}
	}
}

// Policies hold whatever an interpreter may do with sequences.
func TestSequencesAgainstAnAdversary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opt, err := baselines.Named(rapid.SampledFrom(baselines.Names()).Draw(t, "policy"), 1)
		if err != nil {
			t.Fatal(err)
		}
		fleet := workflows.Fleet{Devices: rapid.IntRange(1, 5).Draw(t, "devices"), Gigabytes: rapid.SampledFrom([]float64{17, 24, 40}).Draw(t, "memory"), PerNode: 2, Generations: true}
		if opt.StaticNetworks {
			fleet.Resident = [][]int32{{workflows.LLM}}
		}
		seed := rapid.Uint64().Draw(t, "seed")
		foe := &policytest.Adversary{Tables: fleet.Tables(), Policy: workflow.New(fleet.Tables(), opt), Control: &workflows.Control{Draw: workflows.NewApps(seed).Draw}, Rand: seeded.New(seed, "adversary")}
		if err := foe.Run(rapid.IntRange(10, 400).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
	})
}
