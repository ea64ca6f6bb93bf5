package rules

import (
	"errors"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/policy/vqueue"
)

// tables are those of two instances of one model.
func tables() *policy.Tables {
	t := &policy.Tables{Kinds: []string{"a"}, Networks: make([]policy.Network, 1), Models: []policy.Model{{NumPipelines: 1}}, Pipelines: make([]policy.Pipeline, 1), Stages: make([]policy.Stage, 1),
		Devices: []policy.Device{{Instance: 0}, {Instance: 1}}, Resident: [][]int32{{0}, {0}}, Instances: []policy.Instance{{MaxSequences: 4}, {MaxSequences: 4}}}
	e := vqueue.RCT{Alpha: 1e-4, Beta: .01, Prefill: .02, Decode: .02, Batch: 4, PromptMean: 200, OutputMean: 100, OutputVar: 2500}
	t.KindTables = &vqueue.Tables{RCT: []vqueue.RCT{e, e}, MegaTokens: make([]int32, 1)}
	return t
}

// Every name is registered for plans of queues, and takes the parameters of virtual queues and of
// instances that come and go.
func TestRegistered(t *testing.T) {
	for _, name := range Names() {
		for params, want := range map[string]string{"scale_from=1": "", "one_open=1": "", "scale_from=3": "scale_from: found 3, expected 0 to 2", "scale_pressure=2": "found 2, expected 0 to 1", "none=1": `found the parameter "none"`} {
			key, value, _ := strings.Cut(params, "=")
			_, err := policies.New(formats.PolicySpec{Name: name, Params: map[string]float64{key: float64(value[0] - '0')}}, tables())
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s with %s: %v", name, params, err)
			}
		}
	}
}

// Batches that are filled once know one limit for all classes.
func TestShepherdRefusesCaps(t *testing.T) {
	tab := tables()
	vqueue.TablesOf(tab).Caps = []int32{1, -1}
	for name, refused := range map[string]bool{"shepherd": true, "gateway": false} {
		_, err := policies.New(formats.PolicySpec{Name: name}, tab)
		if e, ok := errors.AsType[*document.Error](err); (ok && e.Path == "queue.instances.caps") != refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
