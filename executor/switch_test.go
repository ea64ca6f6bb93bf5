package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/executor/workers"
	"inferplan/formats"
	"inferplan/formats/document"
)

// shot is how an open-loop request ended.
type shot struct {
	due, done time.Duration // since the start of the load
	how       string
}

// openLoop sends requests of n samples at their times, whatever became of
// earlier ones, for as long as f takes, and tells what became of each. A machine
// too busy for the rate would pile up requests: but for figures, that is bounded.
func openLoop(x *Executor, model, n int, rate float64, f func()) []shot {
	ended := make(chan struct{})
	start := time.Now()
	go func() {
		defer close(ended)
		f()
	}()
	var mu sync.Mutex
	var out []shot
	var wg sync.WaitGroup
	room := make(chan struct{}, 100)
	if long() {
		room = make(chan struct{}, 1<<20)
	}
	for i := 0; ; i++ {
		due := time.Duration(float64(i) / rate * float64(time.Second))
		select {
		case <-ended:
			wg.Wait()
			return out
		case <-time.After(time.Until(start.Add(due))):
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			req := sampleOf(x, model, n)
			req.Received = start.Add(due)
			resp, err := x.Infer(context.Background(), req)
			if err == nil {
				resp.Release()
			}
			mu.Lock()
			out = append(out, shot{due, time.Since(start), reasonOf(err)})
			mu.Unlock()
		})
	}
}

// silence is the longest time without a served answer between two moments.
func silence(all []shot, from, to time.Duration) time.Duration {
	var done []time.Duration
	for _, a := range all {
		if a.how == "served" && a.done >= from && a.done <= to {
			done = append(done, a.done)
		}
	}
	done = append(done, from, to)
	slices.Sort(done)
	var most time.Duration
	for i := 1; i < len(done); i++ {
		most = max(most, done[i]-done[i-1])
	}
	return most
}

// The plan changes from two stages on two kinds of devices to one stage and
// back, several times, under open-loop load: nothing is lost, nobody is
// refused, and answers do not stop meanwhile. INFERPLAN_LONG takes the figure
// against an SLO that a machine must keep up with.
func TestSwitchUnderOpenLoopLoad(t *testing.T) {
	slo, n := patient, 2
	if long() {
		slo, n = 400*time.Millisecond, 1
	}
	pooled, single := pooledPlan(3*time.Millisecond, 2, slo), onePlan(6*time.Millisecond, 2, 3, slo)
	x := open(t, pooled, replayOptions(false))
	switchUnderLoad(t, x, slo, n, 150, single, pooled, single)
}

// A real model the same: SqueezeNet cut in two, each half on two workers of a kind of
// CPU devices of its own or whole on a third, then whole on three.
func TestSwitchOfARealModelUnderLoad(t *testing.T) {
	eng, dir := withORT(t), squeezenet(t)
	slo, n := patient, 2
	if long() {
		slo, n = time.Second, 1
	}
	path := filepath.Join(dir, "squeezenet.onnx")
	read, err := graph.Open(path, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := read.Chain(context.Background(), eng.Probe, graph.ChainOptions{MaxLive: 1})
	if err != nil {
		t.Fatal(err)
	}
	cut := chain.Cuts[len(chain.Cuts)/2]
	real := func() *formats.Plan {
		p := pooledPlan(5*time.Millisecond, 2, slo)
		p.Deployment = p.Deployment[:1]
		p.Pools[0].Count = 2
		m := &p.Deployment[0]
		m.Model, m.Inputs, m.Outputs = "squeezenet", nil, nil
		*m.Pipelines[0].Stages[0].Cut = formats.Cut{Tensors: cut.Names(), DType: "FP32", Bytes: cut.Bytes, TransferUS: make([]document.Micros, 2)}
		return complete(p)
	}
	single := real()
	m := &single.Deployment[0]
	m.Pipelines = m.Pipelines[1:]
	st := &m.Pipelines[0].Stages[0]
	st.Replicas, st.GPUs, st.Placement = 3, 3, []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 3}}
	o := onnxOptions(dir)
	cpus, err := engine.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	o.CPUPlaces = map[string]workers.CPUPlace{"cpu-a": {CPUs: cpus[:1]}, "cpu-b": {CPUs: cpus[len(cpus)-1:]}}
	x := open(t, real(), o)
	switchUnderLoad(t, x, slo, n, 24, complete(single), real())
}

func switchUnderLoad(t *testing.T, x *Executor, slo time.Duration, n int, rate float64, plans ...*formats.Plan) {
	t.Helper()
	type window struct{ from, to time.Duration }
	var windows []window
	start := time.Now()
	all := openLoop(x, 0, n, rate/float64(n), func() {
		for _, next := range plans {
			until(func() bool { return inForce(x).Completed >= 40 })
			from := time.Since(start)
			if err := x.Reload(context.Background(), next, ""); err != nil {
				t.Error(err)
			}
			windows = append(windows, window{from, time.Since(start)})
		}
		if long() {
			time.Sleep(slo)
		}
	})
	ended := map[string]int{}
	late, inside := 0, 0
	for _, a := range all {
		ended[a.how]++
		if a.how == "served" && a.done-a.due > slo {
			late++
		}
		for _, w := range windows {
			if a.due >= w.from && a.done <= w.to {
				inside++
			}
		}
	}
	if ended["served"] != len(all) {
		t.Errorf("%d requests ended as %v", len(all), ended)
	}
	// Loading takes many times as long as a request: some come and are answered while
	// it goes on, however busy the machine is.
	if inside == 0 {
		t.Errorf("none of %d requests came and was answered during a switch: %v", len(all), windows)
	}
	var worst time.Duration
	for _, w := range windows {
		worst = max(worst, silence(all, w.from, w.to))
	}
	t.Logf("%d requests over %d switches: %v, %d late; %d within a switch; longest time without an answer %v; SLO %v; last switch %s", len(all), len(plans), ended, late, inside, worst, slo, phases(t, x))
	if worst > slo && long() {
		t.Errorf("no answer for %v during a switch, want at most one SLO, %v", worst, slo)
	}
	if q, s := held(x); q != 0 || s != 0 {
		t.Errorf("%d request slots and %d memory slots are still held", q, s)
	}
}

// inForce is the part of the report that is of the plan in force.
func inForce(x *Executor) formats.Counts {
	r := x.Report()
	if n := len(r.Plans); n > 0 {
		return r.Plans[n-1].Counts
	}
	return r.Counts
}

func phases(t *testing.T, x *Executor) string {
	families, err := x.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out string
	for _, f := range families {
		if f.GetName() == series.Prefix+"plan_switch_seconds" {
			for _, m := range f.Metric {
				out += fmt.Sprintf("%s %.3f s ", m.Label[0].GetValue(), m.Gauge.GetValue())
			}
		}
	}
	return out
}

// Who ends the server in the midst of a switch does not take the answers away
// that the old plan owes.
func TestEndInTheMidstOfASwitch(t *testing.T) {
	x := open(t, onePlan(time.Second, 1, 1, patient), replayOptions(true))
	old := x.core.Load()
	answered := make(chan error, 1)
	go func() {
		_, err := x.Infer(context.Background(), sample(x, 1))
		answered <- err
	}()
	until(func() bool { return old.ServedModels.Models[0].Running.Load() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		until(func() bool { return x.core.Load() != old })
		cancel()
	}()
	if err := x.Reload(ctx, onePlan(time.Millisecond, 1, 1, patient), ""); err != nil {
		t.Error(err)
	}
	if how := reasonOf(<-answered); how != "served" {
		t.Errorf("what the old plan had accepted ended as %s", how)
	}
}

// A flush that does not end in time leaves the new plan in force. The server
// knows that, says so, and switches back when it is told to.
func TestSwitchBackAfterAFlushThatFailed(t *testing.T) {
	o := replayOptions(false)
	o.FlushTimeout = 50 * time.Millisecond
	stuck, quick := onePlan(time.Hour, 1, 1, 10*time.Hour), onePlan(time.Millisecond, 1, 1, patient)
	stuck.Deployment[0].Pipelines[0].RPS, stuck.Objective.Value = 1e-4, 1e-4
	s, path := serve(t, complete(stuck), o)
	refused := make(chan int, 1)
	ask := func() int {
		resp, err := http.Post("http://"+s.HTTP+"/v2/models/m/infer", "application/json", strings.NewReader(`{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`))
		if err != nil {
			t.Error(err)
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	go func() { refused <- ask() }()
	metrics := func() string {
		_, text := s.get(t, "http://"+s.Metrics+"/metrics")
		return text
	}
	until(func() bool { return strings.Contains(metrics(), `inferplan_in_flight{model="m"} 1`) })
	for i, step := range []struct {
		plan *formats.Plan
		want error
	}{{quick, turn.ErrSwitched}, {stuck, nil}, {quick, nil}} {
		writePlan(t, path, step.plan)
		sum, err := document.Digest(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if err := <-s.reloaded; !errors.Is(err, step.want) || err != nil && step.want == nil {
			t.Errorf("switch %d: %v, expected %v", i+1, err, step.want)
		}
		if !strings.Contains(metrics(), sum) {
			t.Errorf("after switch %d another plan is in force", i+1)
		}
	}
	if code := <-refused; code != http.StatusServiceUnavailable {
		t.Errorf("what the old plan did not answer: status %d", code)
	}
	if code := ask(); code != http.StatusOK {
		t.Errorf("the plan in force: status %d", code)
	}
}
