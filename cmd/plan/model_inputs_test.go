package main

import (
	"slices"
	"strings"
	"testing"

	"inferplan/profiler"
)

func TestInputFlags(t *testing.T) {
	paths := []string{"models/det.onnx", "models/vad.onnx"}
	opt := profiler.Options{Models: paths}
	o := inputOptions{shapes: []string{"x=1x3x320x320", "vad:input=1x512", "input_1:0=1x8"}, values: []string{"vad:sr=16000", "mask=[1,1,0]"}}
	if err := o.setModelOptions(&opt); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(opt.Dims[""]["x"], []int64{1, 3, 320, 320}) || !slices.Equal(opt.Dims["vad"]["input"], []int64{1, 512}) ||
		!slices.Equal(opt.Dims[""]["input_1:0"], []int64{1, 8}) {
		t.Errorf("shapes %v", opt.Dims)
	}
	if v := opt.Values["vad"]["sr"]; len(v.Shape) > 0 || !slices.Equal(v.Values, []float64{16000}) || !slices.Equal(opt.Values[""]["mask"].Values, []float64{1, 1, 0}) {
		t.Errorf("values %v", opt.Values)
	}
	opt = profiler.Options{Models: paths[:1]}
	if o := (inputOptions{shapes: []string{"1x3x320x320"}}); o.setModelOptions(&opt) != nil || !slices.Equal(opt.Dims[""][""], []int64{1, 3, 320, 320}) {
		t.Errorf("a shape alone: %v", opt.Dims)
	}
	for _, c := range []struct {
		o    inputOptions
		says string
	}{
		{inputOptions{shapes: []string{"x=1x3xHx320"}}, `found the size "h", expected whole numbers with x between them`},
		{inputOptions{shapes: []string{"x=1x0"}}, `found the size "0"`},
		{inputOptions{shapes: []string{"x=1x3", "x=1x4"}}, "the input has a shape already"},
		{inputOptions{values: []string{"16000"}}, "expected INPUT=VALUE"},
		{inputOptions{values: []string{"sr=fast"}}, `"fast": expected a number`},
		{inputOptions{values: []string{"sr=1", "sr=2"}}, "the input has a value already"},
	} {
		opt := profiler.Options{Models: paths}
		if err := c.o.setModelOptions(&opt); err == nil || !strings.Contains(err.Error(), c.says) || exitCode(err) != exitUsage {
			t.Errorf("%+v: %v (exit %d) does not say %q", c.o, err, exitCode(err), c.says)
		}
	}
}
