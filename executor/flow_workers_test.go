package executor

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"inferplan/executor/oip"
	"inferplan/executor/tasks"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/testkit/policytest"
)

// diamondPlan has a model for each service of the diamond, on a device each.
func diamondPlan() *formats.Plan {
	p := onePlan(2*time.Millisecond, 2, 1, patient)
	four := func(names ...string) (list []formats.TensorInfo) {
		for _, n := range names {
			list = append(list, formats.TensorInfo{Name: n, DType: "FP32", Shape: []int64{-1, 4}})
		}
		return list
	}
	first := p.Deployment[0]
	p.Deployment, p.Pools[0].Count = nil, 5
	for i, name := range []string{"split", "left", "right", "merge", "write"} {
		m := first
		m.Model, m.Inputs, m.Outputs = name, four("x"), four("y")
		if name == "merge" {
			m.Inputs = four("l", "r")
		}
		stage := first.Pipelines[0].Stages[0]
		stage.Placement = []formats.Placement{{FirstDevice: i, PerDevice: 1, Replicas: 1}}
		m.Pipelines = []formats.Pipeline{{Batch: 2, RPS: 100, Stages: []formats.Stage{stage}}}
		p.Deployment = append(p.Deployment, m)
	}
	return complete(p)
}

// call asks a model for n samples, all the same, and returns the output of one.
func call(t *testing.T, x *Executor, n int, model string, inputs ...[]byte) []byte {
	t.Helper()
	req := &oip.Request{Model: model, Batch: n, Received: time.Now()}
	names := []string{"x"}
	if len(inputs) == 2 {
		names = []string{"l", "r"}
	}
	for i, in := range inputs {
		req.Inputs = append(req.Inputs, oip.Tensor{Name: names[i], Datatype: oip.FP32, Shape: []int64{int64(n), 4}, Data: bytes.Repeat(in, n)})
	}
	resp, err := x.Infer(context.Background(), req)
	if err != nil {
		t.Error(err)
		return make([]byte, 16)
	}
	defer resp.Release()
	return bytes.Clone(resp.Outputs[0].Data[:16])
}

// astray sends the first batch of the left side to a device that lacks it.
type astray struct {
	*policytest.Diamond
	sent bool
}

func (p *astray) Unwrap() policy.Policy { return p.Diamond }

func (p *astray) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.Diamond.Handle(now, ev, out)
	for i := range out.List {
		if a := &out.List[i]; !p.sent && a.Kind == policy.Dispatch && a.Pipeline == policytest.Left {
			out.Hops[a.HopFirst].Device, p.sent = 0, true
		}
	}
}

// Worker processes run the tasks of requests: what a task reads comes out of the
// store, and the answer is that of the models asked one after the other. A worker
// that is killed meanwhile changes nothing of that, nor does a batch that cannot
// run, which the policy has back.
func TestDiamondOnWorkers(t *testing.T) {
	const n = 24
	inputs, want := make([][]byte, n), make([][]byte, n)
	single := open(t, diamondPlan(), replayOptions(true))
	for i := range inputs {
		inputs[i] = bytes.Repeat([]byte{byte(i), 1, 2, 3}, 4)
		full := func(model string, in ...[]byte) []byte { return call(t, single, 2, model, in...) } // a full batch does not wait
		a := full("split", inputs[i])
		want[i] = full("write", full("merge", full("left", a), full("right", a)))
	}
	var log bytes.Buffer
	var pol *policytest.Diamond
	var tables *policy.Tables
	o := replayOptions(false)
	o.EventLog = &log
	o.Control = func(*policy.Tables) policy.Control { return &policytest.DiamondControl{} }
	o.NewPolicy = func(t *policy.Tables, _ formats.PolicySpec) (policy.Policy, error) {
		t.Instances = []policy.Instance{{MaxSequences: 1}} // of no device
		for d := range t.Devices {
			t.Devices[d].Instance = -1
		}
		pol, tables = policytest.NewDiamond(t), t
		return &astray{Diamond: pol}, nil
	}
	x := open(t, diamondPlan(), o)
	c := x.core.Load()
	var wg sync.WaitGroup
	var back atomic.Bool
	for client := range 6 {
		wg.Go(func() {
			for i := client; i < n || !back.Load(); i++ {
				if got := call(t, x, 1, "split", inputs[i%n]); !bytes.Equal(got, want[i%n]) {
					t.Errorf("request %d: %v, expected %v", i%n, got, want[i%n])
				}
			}
		})
	}
	until(func() (killed bool) {
		c.Loop.CallInRound(func() {
			if d := workersOf(c).Devices[policytest.Merge]; len(d.InFlight) > 0 {
				killed = syscall.Kill(d.Process.PID(), syscall.SIGKILL) == nil
			}
		})
		return killed
	})
	until(func() (again bool) {
		c.Loop.CallInRound(func() { again = workersOf(c).Devices[policytest.Merge].Generation == 2 })
		return again
	})
	back.Store(true)
	wg.Wait()
	f := c.Answerer.(*tasks.TaskAnswerer)
	until(func() (idle bool) {
		q, s := held(x)
		c.Loop.CallInRound(func() {
			idle = q == 0 && s == 0 && f.Tasks.Reveals.SlotsInUse() == 0 && f.UsedBytes == 0 && pol.Open() == 0
		})
		return idle
	})
	if r := x.Report(); r.Completed < n || r.Dropped != 0 {
		t.Errorf("report %+v", r.Counts)
	}
	c.Loop.CallInRound(func() {
		if pol.Returned != 1 {
			t.Errorf("%d batches came back, expected the one that went astray", pol.Returned)
		}
	})
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if calls, err := conform.Replay(&log, &astray{Diamond: policytest.NewDiamond(tables)}); err != nil || calls < 100 {
		t.Error(fmt.Errorf("told the same again, after %d calls: %w", calls, err))
	}
}
