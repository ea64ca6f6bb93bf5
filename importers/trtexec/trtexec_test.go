package trtexec

import (
	"bytes"
	"compress/gzip"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats/document"
	"inferplan/profiler"
)

// Files of our own making in the shape that trtexec writes, white space
// included.
const (
	goodTimes = `[
  { "startEnqMs" : 0.1, "endEnqMs" : 0.2, "startH2dMs" : 0.01, "endH2dMs" : 0.05, "startComputeMs" : 0.2, "endComputeMs" : 1.45, "startD2hMs" : 1.45, "endD2hMs" : 1.46, "h2dMs" : 0.04, "computeMs" : 1.25, "d2hMs" : 0.01, "latencyMs" : 1.3 }
, { "startEnqMs" : 1.1, "endEnqMs" : 1.2, "startH2dMs" : 1.01, "endH2dMs" : 1.05, "startComputeMs" : 1.5, "endComputeMs" : 2.8, "startD2hMs" : 2.8, "endD2hMs" : 2.82, "h2dMs" : 0.05, "computeMs" : 1.3, "d2hMs" : 0.02, "latencyMs" : 1.37, "endToEndMs" : 1.9 }
]
`
	goodLayers = `[
  { "count" : 4 }
, { "name" : "Reformatting CopyNode for Input Tensor 0 to conv1 + relu1", "timeMs" : 0.4, "averageMs" : 0.1, "percentage" : 4 }
, { "name" : "conv1 + relu1", "timeMs" : 8, "averageMs" : 2, "medianMs" : 1.9, "percentage" : 80 }
, { "name" : "maybe", "timeMs" : 0.4, "averageMs" : 0.2, "medianMs" : 0.2, "percentage" : 4 }
, { "name" : "fc", "timeMs" : 1.2, "averageMs" : 0.3, "medianMs" : 0, "percentage" : 12 }
]
`
)

func TestReadTimes(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(goodTimes)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"plain": goodTimes, "packed": packed.String()} {
		got, _, err := readTimes(strings.NewReader(text), "t.json")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if us := time.Microsecond; !slices.Equal(got, []profiler.Inference{{HostToDevice: 40 * us, Compute: 1250 * us, DeviceToHost: 10 * us}, {HostToDevice: 50 * us, Compute: 1300 * us, DeviceToHost: 20 * us}}) || got[0].Total() != 1300*us {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestReadLayers(t *testing.T) {
	got, _, err := readLayers(strings.NewReader(goodLayers), "p.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []profiler.Layer{
		{Name: "Reformatting CopyNode for Input Tensor 0 to conv1 + relu1", Time: 100 * time.Microsecond}, // no median: the mean
		{Name: "conv1 + relu1", Time: 1900 * time.Microsecond},
		{Name: "maybe", Time: 100 * time.Microsecond}, // ran every other time
		{Name: "fc", Time: 0},
	}
	if got.Count != 4 || !slices.Equal(got.Layers, want) || got.Total() != 2100*time.Microsecond {
		t.Errorf("%+v", got)
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	times := func(old, new string) string { return strings.Replace(goodTimes, old, new, 1) }
	layers := func(old, new string) string { return strings.Replace(goodLayers, old, new, 1) }
	for _, c := range []struct {
		layers     bool
		text, want string
	}{
		{false, "", "x.json:1:1: found an empty file"},
		{false, "", "a list of times, as trtexec --exportTimes writes it"},
		{false, "{}", "x.json:1:1: found an object, expected a list"},
		{false, "[]", "x.json:1:1: found an empty list"},
		{false, "[1]", "x.json:1:2: [0]: found the number 1, expected an object"},
		{false, goodTimes + "7", "x.json:5:1: found more text after the document"},
		{false, goodTimes[:100], "x.json:2:99: found the end of the file"},
		{false, times(`"computeMs" : 1.25`, `"computMs" : 1.25`), "x.json:2:3: [0].computeMs: found nothing, expected a number"},
		{false, times(`"computeMs" : 1.25`, `"computeMs" : -1.25`), "[0].computeMs: found the number -1.25"},
		{false, times(`"computeMs" : 1.25`, `"computeMs" : 0`), "[0].computeMs: found the number 0, expected more than 0"},
		{false, times(`"computeMs" : 1.25`, `"computeMs" : 1e300`), "[0].computeMs: found the number 1e+300"},
		{false, times(`"computeMs" : 1.25`, `"computeMs" : 1e999`), "[0].computeMs: found the number 1e999"},
		{false, times(`"computeMs" : 1.25`, `"computeMs" : nan`), "[0].computeMs: found nan, expected a finite number"},
		{false, times(`"computeMs" : 1.25`, `"computeMs" : [1.25]`), "[0].computeMs: found a list, expected a number"},
		{false, times(`"computeMs" : 1.25`, `"computeMs" : "1.25"`), "take the quotes off"},
		{false, times(`"computeMs" : 1.3,`, `"computeMs" : -1,`), "x.json:3:"},
		{false, times(`"h2dMs" : 0.04`, `"h2dMs" : 0.04, "h2dMs" : 0.04`), "a second time"},
		{false, goodLayers, "[0].computeMs: found nothing"}, // the other file
		{true, goodTimes, "found no object with a count of iterations alone"},
		{true, "[]", "an empty list"},
		{true, `[{"count":0}]`, "found no object with a count of iterations alone"},
		{true, `[{"count":1.5}]`, "[0].count: found the number 1.5, expected a whole number"},
		{true, `[{"count":2,"name":"a"}]`, "found no object with a count"},
		{true, `[{"count":2}]`, "found 0 layers behind the count"},
		{true, `[{"count":2},{"name":"a","timeMs":0,"averageMs":0,"percentage":0}]`, "found no layer that takes time"},
		{true, layers(`"timeMs" : 8`, `"timeMs" : 9`), "[2].timeMs: found the number 9, expected at most averageMs times the 4 iterations, 8"},
		{true, layers(`"name" : "fc"`, `"name" : ""`), "[4].name: found nothing"},
		{true, layers(`"name" : "fc"`, `"name" : "a"b"`), "x.json:6:"},
		{true, layers(`"name" : "fc"`, `"name" : "a"b"`), "trtexec does not escape names and writes nan where nothing ran"},
		{true, layers(`"averageMs" : 0.3, `, ``), "[4].averageMs: found nothing"},
		{true, layers(`"medianMs" : 1.9`, `"medianMs" : -1.9`), "[2].medianMs: found the number -1.9"},
		{true, layers(`, { "name" : "maybe"`, `, { "count" : 3, "name" : "maybe"`), "[3].count: found a second count"},
		{true, "\x1f\x8b", "x.json: a gzip file that cannot be unpacked"},
	} {
		var err error
		if c.layers {
			_, _, err = readLayers(strings.NewReader(c.text), "x.json")
		} else {
			_, _, err = readTimes(strings.NewReader(c.text), "x.json")
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v\nwant %s", c.text, err, c.want)
		}
	}
	many := strings.NewReader(`[{"count":1}` + strings.Repeat(`,{"name":"l","timeMs":1,"averageMs":1}`, maxLayers+1) + `]`)
	if _, _, err := readLayers(many, "x.json"); err == nil || !strings.Contains(err.Error(), "5001 layers") {
		t.Errorf("%v", err)
	}
}

// Whatever the bytes: no panic, errors that name the file, and numbers that can
// be planned with.
func FuzzRead(f *testing.F) {
	for _, s := range []string{goodTimes, goodLayers, `[{"count":1},{"name":"x","timeMs":1e-9,"averageMs":1e-9}]`, `[[`, `[{"computeMs":1e-320}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		times, _, err := readTimes(bytes.NewReader(data), "x.json")
		if err == nil {
			if len(times) == 0 || slices.ContainsFunc(times, func(x profiler.Inference) bool { return min(x.HostToDevice, x.Compute, x.DeviceToHost) < 0 }) {
				t.Fatalf("%+v", times)
			}
		}
		layers, _, lerr := readLayers(bytes.NewReader(data), "x.json")
		if lerr == nil && (layers.Count < 1 || layers.Total() <= 0) {
			t.Fatalf("%+v", layers)
		}
		if err == nil && lerr == nil && !bytes.Contains(data, []byte("computeMs")) {
			t.Fatalf("both kinds at once: %q", data)
		}
		for _, err := range []error{err, lerr} {
			var e *document.Error
			if err != nil && (!errors.As(err, &e) || e.File != "x.json") {
				t.Fatalf("%#v", err)
			}
		}
	})
}

// Fields that trtexec never wrote are named; older names of copies are read.
func TestFieldsThatAreNotKnownAreNamed(t *testing.T) {
	times, unknown, err := readTimes(strings.NewReader(`[{"startInMs":0,"inMs":0.5,"computeMs":1,"outMs":0.25,"energyMj":3},{"computeMs":1,"b":[1]}]`), "t.json")
	if err != nil || !slices.Equal(unknown, []string{"b", "energyMj"}) || times[0] != (profiler.Inference{HostToDevice: 500 * time.Microsecond, Compute: time.Millisecond, DeviceToHost: 250 * time.Microsecond}) {
		t.Errorf("%+v, %q, %v", times, unknown, err)
	}
	if !hasTimes([]byte(goodTimes)) || hasTimes([]byte(goodLayers)) || !hasLayers([]byte(goodLayers)) || hasLayers([]byte(goodTimes)) {
		t.Error("files are taken for each other")
	}
}

func TestOperatorNames(t *testing.T) {
	for layer, want := range map[string][]string{
		"/conv1/Conv": {"/conv1/Conv"},
		"/layer1/layer1.0/conv1/Conv + /layer1/layer1.0/relu/Relu": {"/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/relu/Relu"},
		"conv_a || conv_b":                           {"conv_a", "conv_b"},
		"PWN(Sigmoid_1)":                             {"Sigmoid_1"},
		"PWN(PWN(/act/Sigmoid), /act/Mul)":           {"/act/Sigmoid", "/act/Mul"},
		"Conv_0 + PWN(Clip_3)":                       {"Conv_0", "Clip_3"},
		"{ForeignNode[/encoder/Add.../head/MatMul]}": {"/encoder/Add", "/head/MatMul"},
		"odd (but) named, so":                        {"odd (but) named, so"},
	} {
		got := benchmark{}.OperatorNames(layer)
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: no %s in %q", layer, w, got)
			}
		}
	}
	if got := (benchmark{}).OperatorNames("Reformatting CopyNode for Input Tensor 0 to Conv_0 + Relu_1"); got != nil {
		t.Errorf("a change of layout has the names %q", got)
	}
}
