package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/engine/certainty"
	"inferplan/engine/graph"
	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy/conform"
	"inferplan/policy/policies"
)

// gearPlan has a small and a large model on some devices: below 100 requests
// per second samples of level 0 or 1 go on to the large one, above it only
// those of level 0. Of six samples two have each level; the small model is
// right but for level 0, the large one always.
func gearPlan(devices int, small, large time.Duration) *formats.Plan {
	p := onePlan(small, 8, devices, 400*time.Millisecond)
	p.Kind, p.Objective = formats.PlanGear, formats.Objective{Name: "accuracy", Value: 1}
	p.Pools[0].Sharing = formats.SharingTime
	p.Policy = formats.PolicySpec{Name: "gear", Params: map[string]float64{"window_us": 100_000, "hysteresis": 2, "alpha": 8, "flush_us": 100_000}}
	m := p.Deployment[0]
	m.Model = "small"
	// Each model has half of the devices' time.
	st := &m.Pipelines[0].Stages[0]
	st.GPUs = float64(devices) / 2
	two := m
	two.Model = "large"
	pl := m.Pipelines[0]
	pl.Stages = slices.Clone(pl.Stages)
	pl.Stages[0].InferUS = flat(large, 8)
	two.Pipelines = []formats.Pipeline{pl}
	p.Deployment = []formats.Deployed{m, two}
	split := make([]float64, devices)
	for i := range split {
		split[i] = 1 / float64(devices)
	}
	gear := func(from, to float64, level int, weight float64) formats.Gear {
		return formats.Gear{FromQPS: from, ToQPS: to, Weight: weight, Accuracy: 1, Bound: 1, Stages: []formats.GearStage{
			{Model: "small", Level: level, Threshold: []float64{.4, .8}[level-1], Fraction: 1, MinQueue: 1, Split: split},
			{Model: "large", Fraction: .5, MinQueue: 1, Split: split},
		}}
	}
	p.Section = &formats.GearPlan{SLOUS: us(400 * time.Millisecond), Percentile: "p95", MaxQPS: 200, Weights: "uniform", Samples: 6,
		Models: []formats.GearModel{{Model: "small", Thresholds: []float64{.4, .8}, Levels: "012012", Correct: "011011"}, {Model: "large", Thresholds: []float64{.4, .8}, Levels: "222222", Correct: "111111"}},
		Gears:  []formats.Gear{gear(0, 100, 2, .5), gear(100, 200, 1, .5)}}
	complete(p)
	for i := range p.Deployment {
		p.Deployment[i].Pipelines[0].Stages[0].RPS /= 2
	}
	return p
}

// answerOf runs one sample and tells who answered it.
func answerOf(t testing.TB, x *Executor, req *oip.Request) (gear int64, model string, resp *oip.Response) {
	t.Helper()
	got, err := x.Infer(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return got.Params["gear"].(int64), got.Params["model"].(string), got
}

// Without models the plan's records say which samples go on, in their order.
func TestReplayForwardsAsRecorded(t *testing.T) {
	p := gearPlan(1, time.Millisecond, 3*time.Millisecond)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	x := open(t, p, replayOptions(true))
	if all := x.Models().Models(); len(all) != 1 || all[0].Name != formats.CascadeName || !x.ModelReady(formats.CascadeName, "") {
		t.Fatalf("served models: %+v", all)
	}
	for i := range 6 {
		gear, model, resp := answerOf(t, x, sample(x, 1))
		if want := []string{"large", "large", "small"}[i%3]; model != want || gear != 0 {
			t.Errorf("sample %d: answered by %s under gear %d, expected %s under 0", i, model, gear, want)
		}
		resp.Release()
	}
	_, models, resp := answerOf(t, x, sample(x, 3))
	if models != "large,large,small" {
		t.Errorf("three samples: answered by %s", models)
	}
	resp.Release()
	r := x.Report()
	if r.Completed != 9 || r.Requests != 9 || r.Accuracy == nil || *r.Accuracy != 1 {
		t.Errorf("report %+v, accuracy %v", r.Counts, r.Accuracy)
	}
	want := []formats.GearModelReport{{Model: "small", Samples: 9, Answers: 3}, {Model: "large", Samples: 6, Answers: 6}}
	for i, m := range r.Gears.Models {
		if m.Model != want[i].Model || m.Samples != want[i].Samples || m.Answers != want[i].Answers || m.Batches < 1 || m.RunningUS <= 0 {
			t.Errorf("model %+v, expected %+v", m, want[i])
		}
	}
	if !slices.Equal(r.Gears.RequestsByGear, []int64{9, 0}) {
		t.Errorf("requests by gear %v", r.Gears.RequestsByGear)
	}
	text := scrape(t, x)
	for _, line := range []string{`inferplan_answers_total{gear="0",model="large"} 6`, `inferplan_answers_total{gear="0",model="small"} 3`, "inferplan_gear 0", `inferplan_family_samples_total{model="small"} 9`} {
		if !strings.Contains(text, line) {
			t.Errorf("metrics lack %q", line)
		}
	}
	r.Format = formats.FormatReport
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
}

// A burst switches to the faster gear and back, each request is answered under
// the gear it came under, and none is lost. The log of the run replays.
func TestSpikeSwitchesDownAndBack(t *testing.T) {
	var log bytes.Buffer
	o := replayOptions(true)
	o.EventLog = &log
	x := open(t, gearPlan(2, time.Millisecond, 2*time.Millisecond), o)
	var mu sync.Mutex
	byGear := [2]int{}
	var wg sync.WaitGroup
	sent := 0
	ask := func() {
		sent++
		wg.Go(func() {
			got, err := x.Infer(context.Background(), sample(x, 1))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			byGear[got.Params["gear"].(int64)]++
			mu.Unlock()
			got.Release()
		})
	}
	answered := func(gear, least int) bool {
		mu.Lock()
		defer mu.Unlock()
		return byGear[gear] >= least
	}
	// Calm, a spike, calm again: each until its gear has answered, for a busy
	// machine sends later than it should.
	for !answered(0, 5) {
		ask()
		time.Sleep(25 * time.Millisecond)
	}
	for !answered(1, 5) {
		for range 4 { // about 200 per second
			ask()
		}
		time.Sleep(20 * time.Millisecond)
	}
	wg.Wait()
	mu.Lock()
	calm := byGear[0]
	mu.Unlock()
	for !answered(0, calm+5) {
		ask()
		time.Sleep(25 * time.Millisecond)
	}
	wg.Wait()
	if byGear[0]+byGear[1] != sent || byGear[0] == 0 || byGear[1] == 0 {
		t.Errorf("%d sent, answered by gear: %v", sent, byGear)
	}
	r := x.Report()
	if r.Completed != int64(sent) || r.Dropped != 0 || r.Gears.Switches < 2 {
		t.Errorf("%d sent; report %+v, %d switches", sent, r.Counts, r.Gears.Switches)
	}
	if r.Gears.RequestsByGear[0] != int64(byGear[0]) || r.Gears.RequestsByGear[1] != int64(byGear[1]) {
		t.Errorf("requests by gear %v, responses say %v", r.Gears.RequestsByGear, byGear)
	}
	spec := x.PolicySpec()
	tables, err := policies.Compile(gearPlan(2, time.Millisecond, 2*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
	again, err := policies.New(spec, tables)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conform.Replay(&log, again); err != nil || n < int64(sent) {
		t.Errorf("replay of %d calls: %v", n, err)
	}
}

// Requests in the middle of their cascade at a reload are answered by the plan
// that took them.
func TestReloadOfGearsLosesNothing(t *testing.T) {
	x := open(t, gearPlan(1, 2*time.Millisecond, 30*time.Millisecond), replayOptions(true))
	got := during(x, 0, 1, 80, func() {
		until(func() bool { return inForce(x).Completed >= 10 })
		if err := x.Reload(context.Background(), gearPlan(2, time.Millisecond, 2*time.Millisecond), "b"); err != nil {
			t.Error(err)
		}
		until(func() bool { return inForce(x).Completed >= 10 })
	})
	if got["served"] != total(got) {
		t.Errorf("ended as %v", got)
	}
}

// A worker that dies in the middle of a cascade loses no request: the other
// device runs its batch again.
func TestLostWorkerOfACascade(t *testing.T) {
	x := open(t, gearPlan(2, 2*time.Millisecond, 30*time.Millisecond), replayOptions(false))
	got := during(x, 0, 1, 60, func() { loseWorker(t, x, 0, 0) })
	if got["served"] != total(got) {
		t.Errorf("ended as %v", got)
	}
	if r := x.Report(); r.Requests != r.Completed {
		t.Errorf("report %+v", r.Counts)
	}
}

// Clients that go away leave nothing behind, wherever their samples were.
func TestCancelledInACascade(t *testing.T) {
	x := open(t, gearPlan(1, 2*time.Millisecond, 20*time.Millisecond), replayOptions(true))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
			defer cancel()
			if got, err := x.Infer(ctx, sample(x, 1+i%4)); err == nil {
				got.Release()
			}
		})
	}
	wg.Wait()
	if err := x.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	c := x.core.Load()
	// What runs for nobody ends within a batch or two.
	until(func() bool {
		q, _ := held(x)
		return q == 0
	})
	if m := c.ServedModels.Models[0]; m.Waiting.Load() != 0 || m.Running.Load() != 0 {
		t.Errorf("%d waiting, %d running", m.Waiting.Load(), m.Running.Load())
	}
	if r := x.Report(); r.Requests != r.Completed+r.Dropped {
		t.Errorf("report %+v", r.Counts)
	}
}

// A plan whose certainties this server cannot compute is refused.
func TestUnknownScoreIsRefused(t *testing.T) {
	p := gearPlan(1, time.Millisecond, time.Millisecond)
	formats.GearOf(p).Score = "margin of logits"
	open(t, p, replayOptions(true)) // its records need no score
	tables, err := policies.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	onnx := Options{CoreOptions: CoreOptions{Engine: "onnx"}}
	onnx.SetDefaults()
	if _, err := onnx.New(p, tables, &onnx.CoreOptions, turn.NewMetrics(nil)); err == nil || !strings.Contains(err.Error(), "gear.score") || !strings.Contains(err.Error(), certainty.Default) {
		t.Errorf("%v", err)
	}
	formats.GearOf(p).Score = certainty.Default
	if _, err := onnx.New(p, tables, &onnx.CoreOptions, turn.NewMetrics(nil)); err != nil {
		t.Error(err)
	}
}

// realCascade is a plan of two real models, and what they are.
func realCascade(t *testing.T, dir string) (*formats.Plan, [2][]byte) {
	t.Helper()
	p := gearPlan(1, time.Millisecond, 2*time.Millisecond)
	p.Pools[0] = formats.Pool{Device: "cpu-1", Count: 1, PerNode: 1, Sharing: formats.SharingTime}
	var onnx [2][]byte
	for i, hidden := range []int{16, 64} {
		m, err := graph.MLP(hidden, uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if onnx[i], err = m.Encode(); err != nil {
			t.Fatal(err)
		}
		pm := &p.Deployment[i]
		path := filepath.Join(dir, pm.Model+".onnx")
		if err := m.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		if pm.SHA256, err = document.Digest(path); err != nil {
			t.Fatal(err)
		}
		pm.Inputs, pm.Outputs = nil, nil
		pm.Pipelines[0].Stages[0].Device = "cpu-1"
	}
	return p, onnx
}

// Real models: the certainty of every answer decides, request by request.
func TestRealCascadeForwardsByCertainty(t *testing.T) {
	eng := withORT(t)
	dir := t.TempDir()
	p, onnx := realCascade(t, dir)
	// What the models say, run one by one.
	scores := func(model int, in *oip.Request) []float64 {
		spec := engine.Spec{Name: in.Inputs[0].Name, Type: engine.F32, Shape: append([]int64{engine.BatchDim}, in.Inputs[0].Shape[1:]...)}
		tensor, err := engine.NewHostTensor(spec, 1, bytes.Clone(in.Inputs[0].Data))
		if err != nil {
			t.Fatal(err)
		}
		got, err := eng.Eval(context.Background(), onnx[model], []engine.Tensor{tensor}, []string{outputName}, engine.Options{}, -1)
		if err != nil {
			t.Fatal(err)
		}
		return floats(got[outputName].Data)
	}
	x := open(t, p, onnxOptions(dir))
	outputName = x.Models().Models()[0].Outputs[0].Name
	var sure []float64
	requests := make([]*oip.Request, 12)
	for i := range requests {
		requests[i] = sample(x, 1)
		image(requests[i])
		data := requests[i].Inputs[0].Data
		copy(data, data[4*i:]) // shifted: another sample
		s := scores(0, requests[i])
		certainty.Normalise(s)
		sure = append(sure, certainty.TopTwo(s))
	}
	sorted := slices.Sorted(slices.Values(sure))
	limit := (sorted[5] + sorted[6]) / 2
	for g, level := range []int{2, 1} {
		formats.GearOf(p).Gears[g].Stages[0].Threshold = []float64{limit / 2, limit}[level-1]
	}
	formats.GearOf(p).Models[0].Thresholds = []float64{limit / 2, limit}
	if err := x.Reload(context.Background(), p, ""); err != nil {
		t.Fatal(err)
	}
	large := 0
	const pause = 20 * time.Millisecond // at most 50 requests/s: the gear for more than 100 never serves
	for i, req := range requests {
		time.Sleep(pause)
		_, model, resp := answerOf(t, x, req)
		want, from := "small", 0
		if sure[i] < limit {
			want, from = "large", 1
			large++
		}
		answer := floats(resp.Outputs[0].Data)
		if diff, size := furthest(scores(from, req), answer); model != want || diff > 1e-5*size {
			t.Errorf("sample %d, certainty %.4f of %.4f: answered by %s, expected %s; outputs differ by %g", i, sure[i], limit, model, want, diff)
		}
		if from == 0 && math.Abs(resp.Params["certainty"].(float64)-sure[i]) > 1e-6 {
			t.Errorf("sample %d: certainty %v, expected %v", i, resp.Params["certainty"], sure[i])
		}
		resp.Release()
	}
	if large != 6 {
		t.Errorf("%d of 12 samples went on, expected half", large)
	}

	// Calibrated, the thresholds are shares of right answers: the same go on.
	small := &formats.GearOf(p).Models[0]
	small.Calibration, small.Thresholds = formats.Calibration{{MinRaw: 0, Certainty: .25}, {MinRaw: limit, Certainty: .75}}, []float64{.3, .5}
	for g, level := range []int{2, 1} {
		formats.GearOf(p).Gears[g].Stages[0].Threshold = small.Thresholds[level-1]
	}
	if err := x.Reload(context.Background(), p, ""); err != nil {
		t.Fatal(err)
	}
	for i, req := range requests {
		time.Sleep(pause)
		_, model, resp := answerOf(t, x, req)
		want := "small"
		if sure[i] < limit {
			want = "large"
		}
		if got := resp.Params["certainty"]; model != want || want == "small" && got != .75 {
			t.Errorf("calibrated, sample %d, score %.4f of %.4f: answered by %s with certainty %v", i, sure[i], limit, model, got)
		}
		resp.Release()
	}
}

var outputName string

func scrape(t testing.TB, x *Executor) string {
	t.Helper()
	families, err := x.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.Counter != nil:
				b.WriteString(name + " " + formatNumber(m.Counter.GetValue()) + "\n")
			case m.Gauge != nil:
				b.WriteString(name + " " + formatNumber(m.Gauge.GetValue()) + "\n")
			}
		}
	}
	return b.String()
}

func formatNumber(v float64) string { b, _ := json.Marshal(v); return string(b) }

// Over the wire the response names gear and model.
func TestCascadeOverHTTP(t *testing.T) {
	x := open(t, gearPlan(1, time.Millisecond, time.Millisecond), replayOptions(true))
	s := oip.NewHTTPServer(x, oip.Options{Door: &httplimit.Door{Log: quiet()}})
	rec := httptest.NewRecorder()
	req := httptest.NewRequest("POST", "http://127.0.0.1/v2/models/cascade/infer", strings.NewReader(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}`))
	s.ServeHTTP(rec, req)
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"gear":0`) || !strings.Contains(rec.Body.String(), `"model":"large"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
