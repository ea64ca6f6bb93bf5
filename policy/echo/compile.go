//go:build testkind

package echo

import (
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/testkit/policytest"
)

// Name is the policy's name in plans.
const Name = "echo"

// Tables mark the tables of such a plan.
type Tables struct{}

// TablesOf returns the kind's own tables. If the plan is of another kind, it returns nil.
func TablesOf(t *policy.Tables) *Tables {
	own, _ := t.KindTables.(*Tables)
	return own
}

// Compile makes one served model of a plan's services. The last is on an
// instance. Of the devices of the others the second has room for two networks and
// holds the first alone, so that the policy has something to load.
func Compile(plan *formats.Plan, t *policy.Tables) error {
	section, ok := plan.Section.(*formats.EchoPlan)
	if !ok || len(t.Services) != formats.EchoServices || len(t.Pipelines) != len(t.Services) || len(t.Stages) != len(t.Services) {
		return &document.Error{Path: "deployment", Found: fmt.Sprintf("%d services on %d stages", len(t.Services), len(t.Stages)), Expected: fmt.Sprintf("%d, on a stage each", formats.EchoServices)}
	}
	asked := section.ServedModels()[0]
	percentile, err := policy.ParsePercentile(asked.Percentile)
	if err != nil {
		return err
	}
	t.Models = []policy.Model{{Name: asked.Model, SLO: asked.SLOUS.D(), Percentile: percentile, RPS: asked.RPS, NumPipelines: int32(len(t.Pipelines))}}
	for p := range t.Pipelines {
		t.Pipelines[p].Model = 0
	}
	for n := range t.Networks {
		t.Networks[n].Bytes = 1
		for range t.Kinds {
			t.Networks[n].LoadTimes = append(t.Networks[n].LoadTimes, [2]time.Duration{time.Millisecond, 3 * time.Millisecond})
		}
	}
	t.Instances = []policy.Instance{{MaxSequences: 2, TokenBudget: 8, ProgressTokens: 4, KVTokens: 1000}}
	for _, d := range t.DevicesOf(policytest.Write) {
		t.Devices[d].Instance = 0
	}
	t.Memory = make([]int64, len(t.Devices))
	if on := t.DevicesOf(policytest.Split); len(on) > 1 {
		t.Memory[on[1]], t.Resident[on[1]] = 2, []int32{policytest.Split}
	}
	t.KindTables = &Tables{}
	return nil
}

// New makes the policy.
func New(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
	for name := range params {
		return nil, fmt.Errorf("policy %s: unknown parameter %q, expected none", Name, name)
	}
	return policytest.NewDiamond(t), nil
}

// Control says which tasks a request has.
func Control(*policy.Tables) policy.Control { return &policytest.DiamondControl{} }
