package formats

import (
	"reflect"
	"strings"
	"testing"
)

// A plan carries how its kinds' numbers were taken where there is a choice: GPUs.
func TestPlanCarriesExecutionOfGPUsOnly(t *testing.T) {
	p := &Profile{Devices: []ProfileDevice{
		{Device: "cpu-1", Provider: "cpu"},
		{Device: "H100", Provider: "cuda", Options: map[string]string{"use_tf32": "0"}, Precision: PrecisionFP16},
		{Device: "L4", Provider: "cuda", Options: map[string]string{"use_tf32": "1"}},
	}}
	got := p.ExecutionFor([]Pool{{Device: "cpu-1"}, {Device: "H100"}})
	want := []Execution{{Device: "H100", Provider: "cuda", Options: map[string]string{"use_tf32": "0"}, Precision: PrecisionFP16}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := p.ExecutionFor([]Pool{{Device: "cpu-1"}}); got != nil {
		t.Errorf("a plan for CPUs carries %+v", got)
	}
	plan := &Plan{Pools: []Pool{{Device: "H100"}}, Execution: []Execution{{Device: "H100"}, {Device: "H100"}, {Device: "L4"}, {Device: "H100", Precision: "int8"}}}
	err := plan.Validate()
	for _, part := range []string{"execution[1].device", "execution[2].device", "execution[3].precision"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("nothing is said of %s: %v", part, err)
		}
	}
}
