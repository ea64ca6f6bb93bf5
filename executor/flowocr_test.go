package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/engine/models"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/testkit/policytest"
	"inferplan/testkit/stepstest"
)

// The image that the pipeline of these tests reads.
const (
	ocrWidth  = 320
	ocrHeight = 160
)

// real has a deployed model be one of the catalogue, on a CPU, for inputs of a
// shape.
func real(t *testing.T, d *formats.Deployed, dir string, shape []int64) {
	t.Helper()
	path := filepath.Join(dir, d.Model+".onnx")
	m, err := models.Open(d.Model, models.Options{Dims: shape})
	if errors.Is(err, models.ErrAbsent) {
		t.Skipf("the models are not here (make setup fetches them): %v", err)
	}
	if err == nil {
		err = m.WriteFile(path)
	}
	if err == nil {
		d.SHA256, err = document.Digest(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Pipelines[0].Stages[0].Device = "cpu-1"
}

// ocrPlan is a pipeline that reads a line of text: detector, orientation
// classifier, recogniser. Where nothing is detected it ends.
func ocrPlan(t *testing.T, dir string) *formats.Plan {
	t.Helper()
	p := policytest.FlowPlan(patient, "feas",
		policytest.FlowStage{Name: "ocr_det", Infer: steady(100*time.Millisecond, 2), Workers: 1},
		policytest.FlowStage{Name: "ocr_cls", After: []string{"ocr_det"}, Infer: steady(5*time.Millisecond, 4), Workers: 1},
		policytest.FlowStage{Name: "ocr_rec", After: []string{"ocr_det", "ocr_cls"}, Infer: steady(50*time.Millisecond, 4), Workers: 1})
	p.Pools[0] = formats.Pool{Device: "cpu-1", Count: 3}
	for i, shape := range [][]int64{{1, 3, ocrHeight, ocrWidth}, {1, 3, 48, 192}, {1, 3, 48, 320}} {
		d := &p.Deployment[i]
		real(t, d, dir, shape)
	}
	list := formats.FlowOf(p).Applications[0].Modules
	list[0].Pre, list[0].Post = "ocr-image", "ocr-box"
	list[0].Branches = []formats.Branch{{Targets: []string{"ocr_cls", "ocr_rec"}, Probability: .95}, {Targets: []string{}, Probability: .05}}
	list[1].Pre = "ocr-line"
	list[2].Pre, list[2].Post = "ocr-upright", "ocr-text"
	return p
}

// A pipeline of real models reads text from images, upside down too, and says so
// where there is none, whether its models have devices of their own or take turns on one. Clients see one model that takes images of bytes and gives
// codes.
func TestOCRReads(t *testing.T) {
	withORT(t)
	for name, turns := range map[string]bool{"on devices of their own": false, "in turns on one": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			plan := ocrPlan(t, dir)
			if turns {
				policytest.TakeTurns(plan, 1)
			}
			readsLines(t, open(t, plan, onnxOptions(dir)))
		})
	}
}

// readsLines sends lines of text to a pipeline and compares what comes back.
func readsLines(t *testing.T, x *Executor) {
	t.Helper()
	keys, err := stepstest.Keys()
	if err != nil {
		t.Fatal(err)
	}
	info := x.Models().Models()[0]
	if len(x.Models().Models()) != 1 || info.Inputs[0].Name != "image" || info.Inputs[0].Datatype != oip.Uint8 || len(info.Outputs) != 2 || info.Outputs[0].Name != "codes" {
		t.Fatalf("the model is %+v", info)
	}
	for _, c := range []struct {
		text   string
		turned bool
	}{{"inference 2026", false}, {"inference 2026", true}, {"GPU latency", false}, {"", false}} {
		data, err := stepstest.Line(c.text, ocrWidth, ocrHeight, 40, 90, 32, c.turned)
		if err != nil {
			t.Fatal(err)
		}
		req := &oip.Request{Model: info.Name, Info: info, Batch: 1, Received: time.Now(),
			Inputs: []oip.Tensor{{Name: "image", Datatype: oip.Uint8, Shape: []int64{1, ocrHeight, ocrWidth, 3}, Data: data}}}
		resp, err := x.Infer(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(resp.Outputs) > 0 {
			got = stepstest.Spell(keys, resp.Outputs[0].Data)
		}
		if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(c.text, " ", "") {
			t.Errorf("read %q, expected %q (turned: %v)", got, c.text, c.turned)
		}
		if passed := resp.Params["passed_over"]; (passed != nil) != (c.text == "") {
			t.Errorf("%q: passed over %v", c.text, passed)
		}
		resp.Release()
	}
	empty(t, x)
}

// pagesPlan is two workflows that read pages on one device. One turns lines, and both
// share the detector and the recogniser. All three models do not fit.
func pagesPlan(t *testing.T, dir string) *formats.Plan {
	t.Helper()
	find := formats.Segment{Name: "find", Modules: []formats.Module{{Name: "detect", Model: "ocr_det", Predecessors: []string{}, Pre: "ocr-image", Post: "ocr-boxes", Outputs: map[string]string{"count": "int"}}},
		NextBranches: []formats.Branch{{Targets: []string{"lines"}, Condition: "detect.count > 0", Probability: .9}, {Targets: []string{}, Probability: .1}}}
	chances := []float64{0, .3, .4, .3}
	turning := formats.Segment{Name: "lines", Modules: []formats.Module{
		{Name: "orient", Model: "ocr_cls", Predecessors: []string{"detect"}, Items: "detect.count", Chances: chances, Pre: "ocr-line"},
		{Name: "read", Model: "ocr_rec", Predecessors: []string{"detect", "orient"}, ForEach: "orient", Pre: "ocr-upright", Post: "ocr-text"}}}
	upright := formats.Segment{Name: "lines", Modules: []formats.Module{
		{Name: "read", Model: "ocr_rec", Predecessors: []string{"detect"}, Items: "detect.count", Chances: chances, Pre: "ocr-line", Post: "ocr-text"}}}
	p := segmentPlan(20*time.Millisecond, 1, formats.FlowApplication{Segments: []formats.Segment{find, turning}},
		map[string][2]int64{"ocr_cls": {}, "ocr_det": {}, "ocr_rec": {}})
	p.Pools[0].Device, p.Pools[0].Memory = "cpu-1", 0
	f := formats.FlowOf(p)
	f.Applications = append(f.Applications, formats.FlowApplication{Served: f.Applications[0].Served, Segments: []formats.Segment{find, upright}})
	f.Applications[1].Model = "upright"
	for i, shape := range [][]int64{{1, 3, 48, 192}, {1, 3, ocrHeight, ocrWidth}, {1, 3, 48, 320}} {
		real(t, &p.Deployment[i], dir, shape)
		p.Deployment[i].Inputs, p.Deployment[i].Outputs = nil, nil
		f.Modules[i].WeightBytes = []int64{1, 4, 9}[i] << 20
	}
	p.Pools[0].Memory = 13 << 20
	return p
}

// Pages of several lines are read line by line, upside down too, by two applications
// that share models which come and go.
func TestOCRReadsPages(t *testing.T) {
	withORT(t)
	dir := t.TempDir()
	x := open(t, pagesPlan(t, dir), onnxOptions(dir))
	keys, err := stepstest.Keys()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, c := range []struct {
		app    int
		lines  []string
		turned bool
	}{{0, []string{"worker 17", "latency 2026", "batch 4"}, false}, {0, []string{"request", "deadline 99"}, true}, {1, []string{"GPU model", "planner 3"}, false}, {1, nil, false}, {0, []string{"inference"}, false}} {
		data, err := stepstest.Page(c.lines, ocrWidth, ocrHeight, 20, 40, 48, 26, c.turned)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(c.lines)
		if c.turned { // the last line is at the top
			slices.Reverse(want)
		}
		wg.Go(func() {
			info := x.Models().Models()[c.app]
			resp, err := x.Infer(t.Context(), &oip.Request{Model: info.Name, Info: info, Batch: 1, Received: time.Now(),
				Inputs: []oip.Tensor{{Name: "image", Datatype: oip.Uint8, Shape: []int64{1, ocrHeight, ocrWidth, 3}, Data: data}}})
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Release()
			if len(want) == 0 {
				if resp.Params["passed_over"] != "read" || len(resp.Outputs) != 2 || resp.Outputs[1].Name != "detect.count" || slices.Max(resp.Outputs[1].Data) != 0 {
					t.Errorf("an empty page: %+v", resp)
				}
				return
			}
			if resp.Params["items"] != fmt.Sprintf("read=%d", len(want)) || len(resp.Outputs) != 2 || resp.Outputs[0].Name != "read.codes" {
				t.Errorf("%v: %v, %v", want, resp.Params, resp.Outputs)
				return
			}
			codes := resp.Outputs[0].Data
			for i, line := range want {
				got := stepstest.Spell(keys, codes[i*len(codes)/3:(i+1)*len(codes)/3])
				if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(line, " ", "") {
					t.Errorf("line %d: read %q, expected %q (turned: %v)", i, got, line, c.turned)
				}
			}
		})
	}
	wg.Wait()
	nothingHeld(t, x)
	if loads, _ := x.figures(); loads < 3 {
		t.Errorf("%d loads, expected three models at the least", loads)
	}
}

// A chain of CNNs, of which the second looks at the client's image again.
func TestChainOfCNNs(t *testing.T) {
	withORT(t)
	dir := t.TempDir()
	p := policytest.FlowPlan(patient, "feas",
		policytest.FlowStage{Name: "squeezenet", Infer: steady(20*time.Millisecond, 2), Workers: 1},
		policytest.FlowStage{Name: "shufflenet", After: []string{"squeezenet"}, Infer: steady(20*time.Millisecond, 2), Workers: 1})
	p.Pools[0] = formats.Pool{Device: "cpu-1", Count: 2}
	for i := range p.Deployment {
		d := &p.Deployment[i]
		real(t, d, dir, nil)
	}
	formats.FlowOf(p).Applications[0].Modules[1].Pre = "client"
	x := open(t, p, onnxOptions(dir))
	alone := open(t, onnxPlan(t, filepath.Join(dir, "shufflenet.onnx"), 20*time.Millisecond, 2, patient), onnxOptions(dir))
	got, want := sample(x, 2), sample(alone, 2)
	image(got)
	image(want)
	a, err := x.Infer(context.Background(), got)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Release()
	b, err := alone.Infer(context.Background(), want)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if d, size := furthest(floats(b.Outputs[0].Data), floats(a.Outputs[0].Data)); d > 1e-5*size || size == 0 {
		t.Errorf("off by %v of %v", d, size)
	}
}
