package modelinputs

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"inferplan/formats/usage"
	"inferplan/profiler"
)

func TestInputFlags(t *testing.T) {
	paths := []string{"models/det.onnx", "models/vad.onnx"}
	opt := profiler.Options{Models: paths}
	o := Flags{shapes: []string{"x=1x3x320x320", "vad:input=1x512", "input_1:0=1x8"}, values: []string{"vad:sr=16000", "mask=[1,1,0]"}}
	if err := o.SetModelOptions(&opt); err != nil {
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
	if o := (Flags{shapes: []string{"1x3x320x320"}}); o.SetModelOptions(&opt) != nil || !slices.Equal(opt.Dims[""][""], []int64{1, 3, 320, 320}) {
		t.Errorf("a shape alone: %v", opt.Dims)
	}
	for _, c := range []struct {
		o    Flags
		says string
	}{
		{Flags{shapes: []string{"x=1x3xHx320"}}, `found the size "h", expected whole numbers with x between them`},
		{Flags{shapes: []string{"x=1x0"}}, `found the size "0"`},
		{Flags{shapes: []string{"x=1x3", "x=1x4"}}, "the input has a shape already"},
		{Flags{values: []string{"16000"}}, "expected INPUT=VALUE"},
		{Flags{values: []string{"sr=fast"}}, `"fast": expected a number`},
		{Flags{values: []string{"sr=1", "sr=2"}}, "the input has a value already"},
	} {
		opt := profiler.Options{Models: paths}
		err := c.o.SetModelOptions(&opt)
		if _, isUsage := errors.AsType[*usage.Error](err); !isUsage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v does not say %q", c.o, err, c.says)
		}
	}
}
