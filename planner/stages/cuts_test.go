package stages

import (
	"testing"

	"inferplan/formats"
)

// float16 crosses where a network is between the stages and the profile shows
// that it does no harm.
func TestCutDType(t *testing.T) {
	fine, harm := &formats.FP16Check{Top1Agreement: 0.995}, &formats.FP16Check{Top1Agreement: 0.98}
	for _, c := range []struct {
		name    string
		block   formats.Block
		network bool
		option  string
		dtype   string
		bytes   int64
	}{
		{"proven", formats.Block{CutBytesFP32: 8, CutBytesFP16: 4, FP16: fine}, true, CutsAuto, "FP16", 4},
		{"harmful", formats.Block{CutBytesFP32: 8, CutBytesFP16: 4, FP16: harm}, true, CutsAuto, "FP32", 8},
		{"not looked at", formats.Block{CutBytesFP32: 8, CutBytesFP16: 4}, true, CutsAuto, "FP32", 8},
		{"only known size", formats.Block{CutBytesFP16: 4}, true, CutsAuto, "FP16", 4},
		{"switched off", formats.Block{CutBytesFP32: 8, CutBytesFP16: 4, FP16: fine}, true, CutsFP32, "FP32", 8},
		{"one host", formats.Block{CutBytesFP32: 8, CutBytesFP16: 4, FP16: fine}, false, CutsAuto, "FP32", 8},
		{"nothing crosses in float16", formats.Block{CutBytesFP16: formats.NoBytes}, true, CutsAuto, "FP16", 0},
		{"nothing crosses", formats.Block{CutBytesFP32: formats.NoBytes}, true, CutsAuto, "FP32", 0},
		{"nothing crosses, switched off", formats.Block{CutBytesFP32: formats.NoBytes, CutBytesFP16: 4, FP16: fine}, true, CutsFP32, "FP32", 0},
		{"only float16 known, switched off", formats.Block{CutBytesFP16: formats.NoBytes}, true, CutsFP32, "FP32", -1},
		{"unknown", formats.Block{}, true, CutsAuto, "FP32", -1},
		{"unknown on one host", formats.Block{}, false, CutsAuto, "FP32", -1},
	} {
		if got := CutAfterBlock(&c.block, c.network, c.option); got.DType != c.dtype || got.Bytes != c.bytes {
			t.Errorf("%s: %+v, expected %s and %d bytes", c.name, got, c.dtype, c.bytes)
		}
	}
}
