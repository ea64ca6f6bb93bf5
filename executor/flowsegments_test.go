package executor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/testkit/policytest"
)

// segmentPlan is a workflow over models that every device may run, each of so many
// bytes in and out.
func segmentPlan(infer time.Duration, devices int, app formats.FlowApplication, models map[string][2]int64) *formats.Plan {
	var list []policytest.FlowStage
	var names []string
	for name := range models {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list = append(list, policytest.FlowStage{Name: name, Infer: steady(infer, 4), Workers: 1})
	}
	p := policytest.FlowPlan(patient, "dyorc", list...)
	f := formats.FlowOf(p)
	p.Pools[0] = formats.Pool{Device: "L4", Count: devices, Memory: 1000, Sharing: formats.SharingTime}
	for i := range p.Deployment {
		d := &p.Deployment[i]
		d.Inputs = []formats.TensorInfo{{Name: "x", DType: "UINT8", Shape: []int64{-1, models[d.Model][0]}}}
		d.Outputs = []formats.TensorInfo{{Name: "y", DType: "UINT8", Shape: []int64{-1, models[d.Model][1]}}}
		s := &d.Pipelines[0].Stages[0]
		s.Device, s.Replicas = "L4", devices
		s.Placement = []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: devices}}
		m := &f.Modules[i]
		m.ColdStartUS, m.WeightBytes, m.NearUS, m.FarUS = us(time.Millisecond), 100, us(time.Microsecond), us(time.Microsecond)
	}
	app.Served = f.Applications[0].Served
	f.Applications = []formats.FlowApplication{app}
	return p
}

// winding goes on by what its first model puts out: to a fan-out over halves, as
// many as the request wants, or round a loop as often.
func winding() formats.FlowApplication {
	none := []string{}
	return formats.FlowApplication{Parameters: map[string]string{"n": "int"}, Segments: []formats.Segment{
		{Name: "first", Modules: []formats.Module{{Name: "look", Model: "a", Predecessors: none, Outputs: map[string]string{"seen": "list(int)"}}},
			NextBranches: []formats.Branch{{Targets: []string{"fan"}, Condition: "look.seen[parameters.n < 9 ? 0 : 99] % 2 == 1", Probability: .5}, {Targets: []string{"loop"}, Probability: .5}}},
		{Name: "fan", Modules: []formats.Module{{Name: "half", Model: "b", Predecessors: []string{"look"}, Items: "parameters.n", Chances: []float64{0, .5, .5}}}},
		{Name: "loop", MaxVisits: 3, Modules: []formats.Module{{Name: "turn", Model: "c", Predecessors: []string{"look"}, Outputs: map[string]string{"y": "list(int)"}}},
			NextBranches: []formats.Branch{{Targets: []string{"loop"}, Condition: "visit < parameters.n && size(turn.y) == 2", Probability: .5, LaterProbabilities: []float64{.1}}, {Targets: none, Probability: .5, LaterProbabilities: []float64{.9}}}},
	}}
}

var windingModels = map[string][2]int64{"a": {4, 4}, "b": {2, 3}, "c": {4, 2}}

// alone asks models one after the other, in a process of its own.
func alone(t *testing.T, models map[string][2]int64) func(model string, in []byte) []byte {
	t.Helper()
	p := onePlan(time.Millisecond, 4, 1, patient)
	first := p.Deployment[0]
	p.Deployment = nil
	for _, name := range []string{"a", "b", "c"} {
		m := first
		m.Model = name
		m.Inputs = []formats.TensorInfo{{Name: "x", DType: "UINT8", Shape: []int64{-1, models[name][0]}}}
		m.Outputs = []formats.TensorInfo{{Name: "y", DType: "UINT8", Shape: []int64{-1, models[name][1]}}}
		stage := first.Pipelines[0].Stages[0]
		stage.Placement = []formats.Placement{{FirstDevice: len(p.Deployment), PerDevice: 1, Replicas: 1}}
		m.Pipelines = []formats.Pipeline{{Batch: 4, RPS: 100, Stages: []formats.Stage{stage}}}
		p.Deployment = append(p.Deployment, m)
	}
	p.Pools[0].Count = 3
	x := open(t, complete(p), replayOptions(true))
	return func(model string, in []byte) []byte {
		t.Helper()
		req := &oip.Request{Model: model, Batch: 4, Received: time.Now(), Inputs: []oip.Tensor{{Name: "x", Datatype: oip.Uint8, Shape: []int64{4, int64(len(in))}, Data: bytes.Repeat(in, 4)}}}
		resp, err := x.Infer(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Release()
		return bytes.Clone(resp.Outputs[0].Data[:len(resp.Outputs[0].Data)/4])
	}
}

// wind asks the workflow of winding.
func wind(ctx context.Context, x *Executor, in []byte, params map[string]oip.Param) (*oip.Response, error) {
	return x.Infer(ctx, &oip.Request{Model: "app", Batch: 1, Received: time.Now(), Params: params,
		Inputs: []oip.Tensor{{Name: "x", Datatype: oip.Uint8, Shape: []int64{1, 4}, Data: in}}})
}

// wounded tells whether an answer has what was asked for, and nothing of the module that
// was passed over.
func wounded(resp *oip.Response, half, turn []byte, passed string) bool {
	want := half
	if passed == "half" {
		want = turn
	}
	return len(resp.Outputs) == 1 && resp.Partial && !strings.HasPrefix(resp.Outputs[0].Name, passed) && bytes.Equal(resp.Outputs[0].Data, want) && resp.Params["passed_over"] == passed
}

// wound is what winding answers, as the conditions say, and what it tells beside it.
func wound(ask func(model string, in []byte) []byte, in []byte, n int) (half, turn []byte, told string) {
	seen := ask("a", in)
	half, turn = make([]byte, 6), make([]byte, 2)
	if seen[0]%2 == 0 {
		copy(turn, ask("c", seen))
		return half, turn, "half"
	}
	for i := range n {
		copy(half[3*i:], ask("b", seen[2*i:2*i+2]))
	}
	return half, turn, "turn"
}

// Worker processes run workflows whose conditions depend on what models put out and
// on what requests bring. A worker that is killed meanwhile changes no answer.
func TestConditionsLeadRequests(t *testing.T) {
	ask := alone(t, windingModels)
	o := replayOptions(false)
	o.EvaluateReplay = true
	x := open(t, segmentPlan(3*time.Millisecond, 2, winding(), windingModels), o)
	info := x.Models().Models()[0]
	if len(info.Outputs) != 2 || info.Outputs[0].Name != "half.y" || !slices.Equal(info.Outputs[0].Shape, []int64{-1, 2, 3}) || info.Outputs[1].Name != "turn.y" {
		t.Fatalf("clients see %+v", info)
	}
	c := x.core.Load()
	const requests = 60
	var wg sync.WaitGroup
	var mu sync.Mutex
	ways := map[string]int{}
	for i := range requests {
		in, n := []byte{byte(i), byte(i / 7), 3, 4}, i%3
		half, turn, passed := wound(ask, in, n)
		wg.Go(func() {
			resp, err := wind(t.Context(), x, in, map[string]oip.Param{"n": int64(n), "other": "x"})
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Release()
			if !wounded(resp, half, turn, passed) {
				t.Errorf("%v, %d: %v, expected %v %v without %s", in, n, resp, half, turn, passed)
			}
			if items := resp.Params["items"]; passed == "turn" && items != fmt.Sprintf("half=%d", n) {
				t.Errorf("%v items", items)
			}
			mu.Lock()
			ways[passed]++
			mu.Unlock()
		})
	}
	until(func() (killed bool) {
		c.Loop.CallInRound(func() {
			if d := workersOf(c).Devices[0]; len(d.InFlight) > 0 {
				killed = syscall.Kill(d.Process.PID(), syscall.SIGKILL) == nil
			}
		})
		return killed
	})
	wg.Wait()
	if ways["half"] < requests/10 || ways["turn"] < requests/10 {
		t.Errorf("ways %v", ways)
	}
	nothingHeld(t, x)
}

// A condition without a value, too many items and parameters that are not there end a
// request with a reason, and nothing else.
func TestConditionsThatFail(t *testing.T) {
	o := replayOptions(true)
	o.EvaluateReplay = true
	x := open(t, segmentPlan(time.Millisecond, 1, winding(), windingModels), o)
	ask := alone(t, windingModels)
	odd := func() []byte {
		for i := range 100 {
			if in := []byte{byte(i), 0, 0, 0}; ask("a", in)[0]%2 == 1 {
				return in
			}
		}
		return nil
	}()
	for _, c := range []struct {
		params map[string]oip.Param
		status int
		want   string
	}{
		{nil, 400, "parameters.n: found nothing, expected the int"},
		{map[string]oip.Param{"n": "two"}, 400, "found two, expected int"},
		{map[string]oip.Param{"n": 1.5}, 400, "found 1.5, expected int"},
		{map[string]oip.Param{"n": int64(3)}, 500, "module half: 3 items, expected at most 2"},
		{map[string]oip.Param{"n": int64(-1)}, 500, "expected a number of items"},
		{map[string]oip.Param{"n": int64(9)}, 500, "index out of bounds: 99"},
	} {
		for range 20 {
			_, err := wind(t.Context(), x, odd, c.params)
			e, ok := err.(*oip.Error)
			if !ok || e.Code.HTTPStatus() != c.status || !strings.Contains(fmt.Sprint(e.Field, ": ", e.Msg), c.want) {
				t.Fatalf("%v: %v (%+v), expected %d: %s", c.params, err, e, c.status, c.want)
			}
		}
	}
	if resp, err := wind(t.Context(), x, odd, map[string]oip.Param{"n": int64(1)}); err != nil {
		t.Error(err)
	} else {
		resp.Release()
	}
	nothingHeld(t, x)
}

// Where more comes than can be answered in time, a part is refused at once, where the
// plan says so.
func TestLateWorkflowsAreRefused(t *testing.T) {
	p := segmentPlan(50*time.Millisecond, 1, winding(), windingModels)
	p.Policy.Params = map[string]float64{"give_up": 1}
	f := formats.FlowOf(p)
	f.Applications[0].SLOUS = us(400 * time.Millisecond)
	f.Transitions = []formats.WaysOf{{Application: "app"}}
	for _, second := range []string{"b", "c"} {
		f.Transitions[0].Paths = append(f.Transitions[0].Paths, formats.Way{Count: 10, KnownTasks: 1, Tasks: []formats.WayTask{{Model: "a"}, {Model: second, Reads: []int{1}}}})
	}
	o := replayOptions(true)
	o.EvaluateReplay = true
	x := open(t, p, o)
	var wg sync.WaitGroup
	var refused, served atomic.Int64
	for i := range 120 {
		time.Sleep(5 * time.Millisecond)
		wg.Go(func() {
			resp, err := wind(t.Context(), x, []byte{byte(i), 1, 2, 3}, map[string]oip.Param{"n": int64(1)})
			var e *oip.Error
			switch {
			case err == nil:
				served.Add(1)
				resp.Release()
			case errors.As(err, &e) && e.Code.HTTPStatus() == 429 && e.Reason == "deadline":
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if refused.Load() < 10 || served.Load() == 0 {
		t.Errorf("%d refused, %d served", refused.Load(), served.Load())
	}
	t.Logf("%d refused, %d served", refused.Load(), served.Load())
	nothingHeld(t, x)
}

// A plan whose conditions ask of tensors that are not there, or are of no such type,
// is refused before a worker starts to run.
func TestConditionsWithoutTensors(t *testing.T) {
	for typ, want := range map[string]string{"int": "it has 4 elements", "list(list(int))": "it has no dimension for a list", "string": ""} {
		app := winding()
		app.Segments[0].Modules[0].Outputs = map[string]string{"seen": typ}
		app.Segments[0].NextBranches[0].Condition = "parameters.n > 1"
		x, err := New(t.Context(), segmentPlan(time.Millisecond, 1, app, windingModels), replayOptions(true))
		if err == nil {
			x.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", typ, err, want)
		}
	}
}

// A small classifier answers where it is sure, a large one where it is not: real
// models, whose confidence the condition computes.
func TestRequestsEscalate(t *testing.T) {
	eng, dir := withORT(t), t.TempDir()
	app := formats.FlowApplication{Parameters: map[string]string{"sure": "double"}, Segments: []formats.Segment{
		{Name: "first", Modules: []formats.Module{{Name: "small", Model: "a", Predecessors: []string{}, Outputs: map[string]string{"logits": "list(double)"}}},
			NextBranches: []formats.Branch{{Targets: []string{"second"}, Condition: "!small.logits.exists(x, x > parameters.sure)", Probability: .5}, {Targets: []string{}, Probability: .5}}},
		{Name: "second", Modules: []formats.Module{{Name: "large", Model: "b", Predecessors: []string{}}}},
	}}
	p := segmentPlan(time.Millisecond, 1, app, map[string][2]int64{"a": {1, 1}, "b": {1, 1}})
	p.Pools[0].Device = "cpu-1"
	paths := []string{filepath.Join(dir, "a.onnx"), filepath.Join(dir, "b.onnx")}
	for i, hidden := range []int{16, 256} {
		m, err := graph.MLP(hidden, uint64(i+1))
		if err == nil {
			err = m.WriteFile(paths[i])
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Deployment[i].Inputs, p.Deployment[i].Outputs = nil, nil
		p.Deployment[i].Pipelines[0].Stages[0].Device = "cpu-1"
	}
	x := open(t, p, onnxOptions(dir))
	small, large := whole(t, eng, paths[0], 1), whole(t, eng, paths[1], 1)
	by := map[any]int{}
	for i := range 20 {
		var image []byte
		for k := range 784 {
			image = binary.LittleEndian.AppendUint32(image, math.Float32bits(float32(math.Sin(float64(1+i+k*k)))))
		}
		truth := map[any][]float64{}
		for name, b := range map[string]engine.Binding{"small": small, "large": large} {
			if err := b.Inputs()[0].Write(image); err != nil {
				t.Fatal(err)
			}
			if err := b.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			truth[name] = floats(b.Outputs()[0].Bytes())
		}
		want := "large"
		if slices.Max(truth["small"]) > .6 {
			want = "small"
		}
		resp, err := x.Infer(t.Context(), &oip.Request{Model: "app", Batch: 1, Received: time.Now(), Params: map[string]oip.Param{"sure": .6},
			Inputs: []oip.Tensor{{Name: "x", Datatype: oip.FP32, Shape: []int64{1, 784}, Data: image}}})
		if err != nil {
			t.Fatal(err)
		}
		if d, size := furthest(truth[want], floats(resp.Outputs[0].Data)); resp.Params["answered_by"] != want || d > 1e-4*max(size, 1) {
			t.Errorf("image %d answered by %v, expected %s; off by %v", i, resp.Params["answered_by"], want, d)
		}
		by[want]++
		resp.Release()
	}
	if by["small"] == 0 || by["large"] == 0 {
		t.Errorf("all answered by one: %v", by)
	}
}

// A plan whose replayed loads take longer than workers may take to start is refused at once.
func TestLoadsBeyondTheStartTimeout(t *testing.T) {
	p := segmentPlan(time.Millisecond, 2, winding(), windingModels)
	if err := Compile(p, true); err != nil {
		t.Fatal(err)
	}
	module := &formats.FlowOf(p).Modules[1]
	module.ColdStartUS, module.Resident = us(20*time.Minute), []int{0}
	if err := Compile(p, true); !errors.Is(err, turn.ErrPlan) || !strings.Contains(err.Error(), "device 0") {
		t.Errorf("loads of 20 minutes: %v", err)
	}
}
