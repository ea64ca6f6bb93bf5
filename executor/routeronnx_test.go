package executor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/workflow"
	"inferplan/sim"
)

// largest is the place of the largest number.
func largest(of []float64) int {
	best := 0
	for i, v := range of {
		if v > of[best] {
			best = i
		}
	}
	return best
}

// evenOrOdd sends a digit that the router takes for an odd one to the second of the
// other services.
func evenOrOdd(_ int32, outputs [][]byte) policy.Outcome {
	return policy.Outcome{Branch: int32(largest(floats(outputs[0])) & 1)}
}

// cpuRouter serves classifiers of digits, by service, on one CPU device whose
// memory holds the two that ask first and one more at a time.
func cpuRouter(t *testing.T, eng *ort.Engine, paths []string) *router {
	t.Helper()
	r := &router{batch: 8, kind: "cpu-1", real: true, devices: 1, slo: patient, policy: "dyorc", load: 2 * time.Millisecond}
	for i, path := range paths {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		r.services, r.bytes = append(r.services, modelName(path)), append(r.bytes, st.Size())
		r.infer = append(r.infer, timeOf(t, eng, path))
		if i < 2 {
			r.memory += st.Size()
		}
	}
	r.memory += slices.Max(r.bytes)
	return r
}

// whole loads a model in this process.
func whole(t *testing.T, eng *ort.Engine, path string, batch int) engine.Binding {
	t.Helper()
	ctx := context.Background()
	m, err := graph.Open(path, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.Chain(ctx, eng.Probe, graph.ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := c.CutAt(nil)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := blocks.Slice(0, 1, graph.SliceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := eng.Load(ctx, sub, engine.CPUDevice(0), engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Bind(engine.BindOptions{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(); b.Close() })
	return x
}

// timeOf is about how long a batch of one takes.
func timeOf(t *testing.T, eng *ort.Engine, path string) time.Duration {
	t.Helper()
	x := whole(t, eng, path, 1)
	took, err := x.RunN(20)
	if err != nil {
		t.Fatal(err)
	}
	cpu, _ := took.PerRun()
	return max(cpu, time.Microsecond).Round(time.Microsecond) + time.Microsecond
}

// truth is what the services answer, asked one after the other.
type truth struct {
	branch [2][]int32 // by application and image
	answer [2][][]float64
}

func truthOf(t *testing.T, eng *ort.Engine, paths []string, images [][]byte) (out truth) {
	t.Helper()
	said := make([][][]float64, len(paths))
	for s, path := range paths {
		x := whole(t, eng, path, 1)
		for _, image := range images {
			if err := x.Inputs()[0].Write(image); err != nil {
				t.Fatal(err)
			}
			if err := x.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			said[s] = append(said[s], floats(x.Outputs()[0].Bytes()))
		}
	}
	for app, way := range ways {
		for i := range images {
			b := int32(largest(said[way[0]][i]) & 1)
			out.branch[app] = append(out.branch[app], b)
			out.answer[app] = append(out.answer[app], said[way[1+b]][i])
		}
	}
	return out
}

// sent is a request of an open-loop run.
type sent struct {
	at         time.Time
	app, image int
	took       time.Duration
	err        error
}

// offer sends requests at random moments, whatever becomes of those before.
func (want *truth) offer(x *Executor, images [][]byte, rps float64, length time.Duration) []sent {
	rng := seeded.New(1, "router")
	var list []sent
	for at := 0.0; at < length.Seconds(); at += rng.ExpFloat64() / rps {
		list = append(list, sent{at: time.Time{}.Add(time.Duration(at * 1e9)), app: rng.IntN(2), image: rng.IntN(len(images))})
	}
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range list {
		s := &list[i]
		due := begin.Add(s.at.Sub(time.Time{}))
		if d := time.Until(due); d > 0 {
			time.Sleep(d)
		}
		wg.Go(func() {
			s.at = time.Now()
			m := x.core.Load().ServedModels.Models[s.app]
			resp, err := x.Infer(context.Background(), &oip.Request{Model: m.Name, Batch: 1, Received: s.at,
				Inputs: []oip.Tensor{{Name: m.Inputs[0].Name, Datatype: oip.FP32, Shape: m.Inputs[0].Shape, Data: images[s.image]}}})
			s.took = time.Since(s.at)
			if s.err = err; err != nil {
				return
			}
			got := floats(resp.Outputs[0].Data)
			if diff, size := furthest(want.answer[s.app][s.image], got); diff > 1e-4*max(size, 1) {
				s.err = fmt.Errorf("image %d: %v, expected %v", s.image, got, want.answer[s.app][s.image])
			}
			resp.Release()
		})
	}
	wg.Wait()
	slices.SortStableFunc(list, func(a, b sent) int { return a.at.Compare(b.at) })
	return list
}

// figures are what a run shows beside its answers.
func (x *Executor) figures() (loads int64, meanBatch float64) {
	c := x.core.Load()
	c.Loop.CallInRound(func() {
		batches, tasks := int64(0), int64(0)
		for _, d := range workersOf(c).OwnDevices {
			loads += d.Networks.Loads
		}
		for _, s := range c.Services {
			for size := range s.Stats.Batches {
				batches, tasks = batches+s.Stats.Batches[size].Count, tasks+int64(size)*s.Stats.Batches[size].Count
			}
		}
		meanBatch = float64(tasks) / float64(max(batches, 1))
	})
	return loads, meanBatch
}

// Two applications route images over shared classifiers, on one device that cannot
// hold all of them: they are swapped without an error, batches hold requests of
// both, and every answer is that of the classifiers asked one after the other.
func TestRouterSwapsClassifiers(t *testing.T) {
	eng, dir := withORT(t), t.TempDir()
	var paths []string
	for i, c := range []struct {
		name   string
		hidden int
	}{{"first-even", 16}, {"first-odd", 16}, {"second-a", 64}, {"second-b", 256}, {"second-c", 64}} {
		m, err := graph.MLP(c.hidden, uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Join(dir, c.name+".onnx"))
		if err := m.WriteFile(paths[i]); err != nil {
			t.Fatal(err)
		}
	}
	rng, images := seeded.New(1, "images"), make([][]byte, 24)
	for i := range images {
		for range 784 {
			images[i] = binary.LittleEndian.AppendUint32(images[i], math.Float32bits(2*rng.Float32()-1))
		}
	}
	want := truthOf(t, eng, paths, images)
	r := cpuRouter(t, eng, paths)
	o := r.options(onnxOptions(dir))
	o.OutcomeOf = evenOrOdd
	x := open(t, r.plan(), o)
	for _, s := range want.offer(x, images, 300, time.Second) {
		if s.err != nil {
			t.Error(s.err)
		}
	}
	nothingHeld(t, x)
	loads, mean := x.figures()
	t.Logf("%d loads, mean batch %.2f", loads, mean)
	if loads <= int64(len(paths)) || mean <= 1 { // more than each once
		t.Errorf("%d loads, mean batch %.2f", loads, mean)
	}
}

// played holds the requests as the simulator knows them.
type played struct {
	list []sent
	next int
	req  []int32 // request of the list, by slot
	want *truth
}

func (p *played) Arrive(req int32, _ *arrivals.Request) {
	for int(req) >= len(p.req) {
		p.req = append(p.req, 0)
	}
	p.req[req] = int32(p.next)
	p.next++
}

func (p *played) Outcome(req, _, _ int32) (policy.Outcome, int64) {
	s := &p.list[p.req[req]]
	return policy.Outcome{Branch: p.want.branch[s.app][s.image]}, 0
}

func (p *played) Tokens(int32) int32 { return 0 }

// simulate plays a run again with its recorded times.
func (r *router) simulate(t *testing.T, list []sent, want *truth, service *turn.ServiceTimes) []time.Duration {
	t.Helper()
	var source []arrivals.Request
	for _, s := range list {
		source = append(source, arrivals.Request{ArrivedAt: s.at.Sub(list[0].at), Model: int32(s.app), SLO: r.slo})
	}
	times, err := sim.RecordedService(r.tables, sim.Samples{Runs: service.Runs, Starts: service.Starts, ReportDelays: service.ReportDelays, Loads: service.Loads, LoadStarts: service.LoadStarts}, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	opt, err := workflow.OptionsByName(r.policy)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	_, err = sim.Run(context.Background(), sim.Config{
		Tables: r.tables, Policy: workflow.New(r.tables, opt), Source: arrivals.Slice(source), Service: times, Verify: true, NoReport: true,
		Control: &routerControl{}, Truth: &played{list: list, want: want}, Ingress: service.Ingress, Egress: service.Egress,
		OnCompleted: func(arrived, answered time.Duration) { took = append(took, answered-arrived) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return took
}

// The router over the classifiers of digits, against the simulator with recorded
// times. A quiet run:
//
//	INFERPLAN_LONG=1 go test -run TestRouterAgainstSimulator -v ./executor
func TestRouterAgainstSimulator(t *testing.T) {
	if !long() {
		t.Skip("INFERPLAN_LONG=1 trains classifiers and serves them for some minutes")
	}
	eng, dir := withORT(t), t.TempDir()
	paths, err := models.Write(dir, models.DefaultSeed, "digits-4", "digits-16", "digits-64", "digits-256", "digits-conv")
	if errors.Is(err, models.ErrAbsent) {
		t.Skipf("the images are not here (make setup fetches them): %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	data, err := models.Digits()
	if err != nil {
		t.Fatal(err)
	}
	var images [][]byte
	for i := range 500 {
		var image []byte
		for _, v := range data.Samples[i].Pixels {
			image = binary.LittleEndian.AppendUint32(image, math.Float32bits(v))
		}
		images = append(images, image)
	}
	want := truthOf(t, eng, paths, images)
	for _, rps := range []float64{100, 200, 400} {
		r := cpuRouter(t, eng, paths)
		o := r.options(onnxOptions(dir))
		o.OutcomeOf, o.RecordService, o.CPUs = evenOrOdd, true, []int{runtime.NumCPU() - 1}
		x := open(t, r.plan(), o)
		list := want.offer(x, images, rps, 20*time.Second)
		var took []time.Duration
		for _, s := range list {
			if s.err != nil {
				t.Error(s.err)
			}
			took = append(took, s.took)
		}
		loads, mean := x.figures()
		again := r.simulate(t, list, &want, x.Service())
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(took)
		slices.Sort(again)
		at := func(list []time.Duration, q float64) float64 {
			return float64(list[min(int(q*float64(len(list))), len(list)-1)]) / 1e6
		}
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("%4.0f requests/s: %d requests, %d loads, mean batch %.2f; p50 %.2f ms (simulated %.2f, %+.1f %%), p99 %.2f ms (%.2f, %+.1f %%); load of the machine %.4s",
			rps, len(list), loads, mean, at(took, .5), at(again, .5), 100*(at(again, .5)/at(took, .5)-1), at(took, .99), at(again, .99), 100*(at(again, .99)/at(took, .99)-1), load)
		if loads == 0 || len(again) != len(took) {
			t.Errorf("%d loads, %d answers, %d simulated", loads, len(took), len(again))
		}
	}
}
