package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "inferplan/bench/pard/readings" // back, which drops at the last module alone
	"inferplan/executor/oip"
	"inferplan/executor/tasks"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/testkit/policytest"
)

// steady is a time of a batch, whatever its size.
func steady(d time.Duration, sizes int) []time.Duration {
	out := make([]time.Duration, sizes)
	for i := range out {
		out[i] = d
	}
	return out
}

// split is an application that goes two ways from a and is merged in d.
func split(slo time.Duration, policy string, b, c time.Duration) *formats.Plan {
	return policytest.FlowPlan(slo, policy,
		policytest.FlowStage{Name: "a", Infer: steady(5*time.Millisecond, 2), Workers: 1},
		policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: steady(b, 2), Workers: 1},
		policytest.FlowStage{Name: "c", After: []string{"a"}, Infer: steady(c, 2), Workers: 1},
		policytest.FlowStage{Name: "d", After: []string{"b", "c"}, Infer: steady(5*time.Millisecond, 2), Workers: 1})
}

// twoInputs lets module d take what both sides give.
func twoInputs(p *formats.Plan) *formats.Plan {
	one := formats.TensorInfo{Name: "x", DType: "FP32", Shape: []int64{-1, 1}}
	for i := range p.Deployment {
		d := &p.Deployment[i]
		d.Inputs, d.Outputs = []formats.TensorInfo{one}, []formats.TensorInfo{one}
		if d.Model == "d" {
			other := one
			other.Name = "y"
			d.Inputs = append(d.Inputs, other)
		}
	}
	return p
}

// empty waits until an executor of applications holds nothing any more.
func empty(t *testing.T, x *Executor) {
	t.Helper()
	c, left := x.core.Load(), ""
	for range 3000 {
		requests, slots := held(x)
		c.Loop.CallInRound(func() {
			f := c.Answerer.(*tasks.TaskAnswerer)
			left = ""
			if requests+slots+f.Tasks.Reveals.SlotsInUse() > 0 || f.UsedBytes > 0 {
				left = fmt.Sprintf("%d requests, %d slots, %d tasks, %d bytes", requests, slots, f.Tasks.Reveals.SlotsInUse(), f.UsedBytes)
			}
			for _, s := range c.Services {
				if w, r := s.Waiting.Load(), s.Running.Load(); left == "" && w+r != 0 {
					left = fmt.Sprintf("module %s: %d waiting, %d running", s.Name, w, r)
				}
			}
		})
		if left == "" {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Error("still held:", left)
}

// refused checks that a request was refused with a reason and when asking again is
// worth it: 429, never 503.
func refused(t *testing.T, err error, reason string) {
	t.Helper()
	var e *oip.Error
	if !errors.As(err, &e) || e.Code.HTTPStatus() != 429 || e.Reason != reason || e.RetryAfter <= 0 || e.Estimate <= 0 {
		t.Errorf("%v (%+v), expected 429 with reason %s, an estimate and when to ask again", err, e, reason)
	}
}

// An ensemble of which a step rejects does not hang (Triton server issue 6796 and
// core pull request 470): the request ends as a whole and at once.
func TestStuckEnsembleAStepRejects(t *testing.T) {
	const slow = 400 * time.Millisecond
	// The branch to c cannot make it any more when it is known; that to b runs.
	p := twoInputs(split(patient, "back", slow, 30*time.Second))
	x := open(t, p, replayOptions(true))
	req := sample(x, 1)
	req.Timeout = 20 * time.Second
	begin := time.Now()
	_, err := x.Infer(context.Background(), req)
	took := time.Since(begin)
	refused(t, err, "deadline")
	requests, _ := held(x)
	if took >= slow || requests != 1 {
		t.Errorf("refused after %v with %d requests held, expected it while the other step runs for %v", took, requests, slow)
	}
	empty(t, x)
}

// A branch that is not taken never comes, and the merge does not wait for it.
func TestStuckEnsembleABranchNeverComes(t *testing.T) {
	p := split(patient, "feas", 5*time.Millisecond, 5*time.Millisecond)
	formats.FlowOf(p).Applications[0].Modules[0].Branches = []formats.Branch{{Targets: []string{"b"}, Probability: .5}, {Targets: []string{"c"}, Probability: .5}}
	x := open(t, p, replayOptions(true))
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			resp, err := x.Infer(context.Background(), sample(x, 1))
			if err != nil {
				t.Error(err)
				return
			}
			resp.Release()
		})
	}
	wg.Wait()
	empty(t, x)
	r := x.Report()
	if len(r.Modules) != 4 || r.Modules[1].Requests == 0 || r.Modules[2].Requests == 0 || r.Modules[1].Requests+r.Modules[2].Requests != 40 || r.Modules[3].Requests != 40 {
		t.Errorf("modules %+v, expected 40 requests over b and c and as many in d", r.Modules)
	}
}

// A step whose worker hangs is waited for until there is no hope, not longer.
func TestStuckEnsembleAWorkerHangs(t *testing.T) {
	p := twoInputs(split(400*time.Millisecond, "feas", 5*time.Millisecond, 5*time.Millisecond))
	x := open(t, p, replayOptions(false))
	c := x.core.Load()
	var pid int
	c.Loop.CallInRound(func() { pid = workersOf(c).Devices[2].Process.PID() })
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err := x.Infer(context.Background(), sample(x, 1))
	refused(t, err, "deadline")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	empty(t, x)
}

// A merge waits for a branch whose task is dropped in its queue: the request is
// refused while others run there, and the merge is never asked for.
func TestStuckEnsembleAMergeWaitsForADroppedBranch(t *testing.T) {
	const slow = 300 * time.Millisecond
	p := twoInputs(split(patient, "back", 5*time.Millisecond, slow))
	p.Policy.Params = map[string]float64{"prompt": 1}
	p.Deployment[2].Pipelines[0].Batch = 1
	st := &p.Deployment[2].Pipelines[0].Stages[0]
	st.InferUS, st.RPS = st.InferUS[:1], 1/slow.Seconds()
	p.Deployment[2].Pipelines[0].RPS = st.RPS
	x := open(t, p, replayOptions(true))
	ends := make(chan error, 4)
	for i := range 4 {
		req := sample(x, 1)
		if i == 3 {
			req.Timeout = 800 * time.Millisecond // b is done at once, c is busy for 900 ms
		}
		go func() {
			resp, err := x.Infer(context.Background(), req)
			if err == nil {
				resp.Release()
			}
			ends <- err
		}()
		c := x.core.Load()
		until(func() (in bool) {
			c.Loop.CallInRound(func() {
				in = c.Answerer.(*tasks.TaskAnswerer).Modules.Series[2].Tasks == int64(i+1) || i == 3 && c.Ledger.Pending() < 4
			})
			return in
		})
	}
	dropped := 0
	for range 4 {
		if err := <-ends; err != nil {
			refused(t, err, "deadline")
			dropped++
		}
	}
	if dropped != 1 {
		t.Errorf("%d refused, expected the last one alone", dropped)
	}
	empty(t, x)
	if r := x.Report(); r.Modules[3].Requests != 3 || r.Modules[2].Dropped != 1 {
		t.Errorf("modules %+v, expected three requests in d and one dropped because of c", r.Modules)
	}
}

// Clients see an application as one model that takes what its first module takes
// and gives what its last one gives; modules are no models.
func TestApplicationIsOneModel(t *testing.T) {
	p := twoInputs(split(patient, "feas", time.Millisecond, time.Millisecond))
	x := open(t, p, replayOptions(true))
	all := x.Models().Models()
	if len(all) != 1 || all[0].Name != "app" || len(all[0].Inputs) != 1 || len(all[0].Outputs) != 1 || !x.ModelReady("app", "") || x.ModelReady("d", "") {
		t.Fatalf("models %+v", all)
	}
	resp, err := x.Infer(context.Background(), sample(x, 3))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Release()
	if s := resp.Outputs[0].Shape; s[0] != 3 || len(resp.Params) != 0 {
		t.Errorf("shape %v, parameters %v", s, resp.Params)
	}
	families, err := x.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "inferplan_module_") {
			found++
			if n := len(f.Metric); n != 4 && n != 12 {
				t.Errorf("%s has %d series", f.GetName(), n)
			}
		}
	}
	if found != 5 {
		t.Errorf("%d families of modules, expected 5", found)
	}
}

// A request that ends before a last module has none of its outputs, also where it asks
// for them, and is told where it did not come to; of several ends each has its outputs.
func TestWaysThatLeadElsewhere(t *testing.T) {
	p := policytest.FlowPlan(patient, "feas",
		policytest.FlowStage{Name: "a", Infer: steady(time.Millisecond, 2), Workers: 1, Branches: []formats.Branch{{Targets: []string{"b"}, Probability: 0}, {Targets: []string{}, Probability: 1}}},
		policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: steady(time.Millisecond, 2), Workers: 1},
		policytest.FlowStage{Name: "c", After: []string{"a"}, Infer: steady(time.Millisecond, 2), Workers: 1})
	x := open(t, p, replayOptions(true))
	if outs := x.Models().Models()[0].Outputs; len(outs) != 2 || outs[0].Name != "b.output" || outs[1].Name != "c.output" {
		t.Fatalf("outputs %+v", outs)
	}
	for _, n := range []int{1, 2} {
		resp, err := x.Infer(context.Background(), sample(x, n))
		if err != nil {
			t.Fatal(err)
		}
		if want := map[int]string{1: "b", 2: "0:b,1:b"}[n]; fmt.Sprint(resp.Params["passed_over"]) != want && n == 1 {
			t.Errorf("parameters %v, expected %s", resp.Params, want)
		}
		if len(resp.Outputs) != 1 || resp.Outputs[0].Name != "c.output" || !resp.Partial {
			t.Errorf("outputs %+v, expected c's alone", resp.Outputs)
		}
		resp.Release()
	}
	empty(t, x)
}

// What cannot be served is said before anything is: a way that nothing tells, a
// module that takes other than it reads.
func TestApplicationsThatCannotBeServed(t *testing.T) {
	other := twoInputs(split(patient, "feas", time.Millisecond, time.Millisecond))
	other.Deployment[1].Inputs[0].Shape = []int64{-1, 7}
	_, err := New(context.Background(), other, replayOptions(true))
	if !errors.Is(err, turn.ErrPlan) || !strings.Contains(err.Error(), "module b: it reads") {
		t.Error(err)
	}
	steps := twoInputs(split(patient, "feas", time.Millisecond, time.Millisecond))
	formats.FlowOf(steps).Applications[0].Modules[0].Pre = "ocr-image"
	if _, err := New(context.Background(), steps, replayOptions(true)); !errors.Is(err, turn.ErrPlan) || !strings.Contains(err.Error(), "module a") {
		t.Error(err)
	}
}
