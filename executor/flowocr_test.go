package executor

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inferplan/engine/models"
	"inferplan/executor/oip"
	"inferplan/executor/steps/stepstest"
	"inferplan/formats"
	"inferplan/policy/policytest"
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
		d.SHA256, err = formats.Digest(path)
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
	list[0].Branches = []formats.Branch{{To: []string{"ocr_cls", "ocr_rec"}, Probability: .95}, {To: []string{}, Probability: .05}}
	list[1].Pre = "ocr-line"
	list[2].Pre, list[2].Post = "ocr-upright", "ocr-text"
	return p
}

// A pipeline of real models reads text from images, upside down too, and says so
// where there is none. Clients see one model that takes images of bytes and gives
// codes.
func TestOCRReads(t *testing.T) {
	withORT(t)
	dir := t.TempDir()
	x := open(t, ocrPlan(t, dir), onnxOptions(dir))
	keys, err := stepstest.Keys()
	if err != nil {
		t.Fatal(err)
	}
	info := x.Models().All()[0]
	if len(x.Models().All()) != 1 || info.Inputs[0].Name != "image" || info.Inputs[0].Datatype != oip.Uint8 || len(info.Outputs) != 2 || info.Outputs[0].Name != "codes" {
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
		got := stepstest.Spell(keys, resp.Outputs[0].Data)
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
