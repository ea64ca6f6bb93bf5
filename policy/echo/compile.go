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
	kindTables, _ := t.KindTables.(*Tables)
	return kindTables
}

// Compile completes the tables of a plan of this kind, which only tests have: its services serve one model together,
// and the devices of the service Write are the one instance. The second device of the service Split has memory for two
// networks of one byte and holds one at the start, so that the policy has something to load.
func Compile(plan *formats.Plan, t *policy.Tables) error {
	section, ok := plan.Section.(*formats.EchoPlan)
	if !ok || len(t.Services) != formats.EchoServices || len(t.Pipelines) != len(t.Services) || len(t.Stages) != len(t.Services) {
		return &document.Error{Path: "deployment", Found: fmt.Sprintf("%d services on %d stages", len(t.Services), len(t.Stages)), Expected: fmt.Sprintf("%d, on a stage each", formats.EchoServices)}
	}
	served := section.ServedModels()[0]
	percentile, err := policy.ParsePercentile(served.Percentile)
	if err != nil {
		return err
	}
	t.Models = []policy.Model{{Name: served.Model, SLO: served.SLOUS.D(), Percentile: percentile, RPS: served.RPS, NumPipelines: int32(len(t.Pipelines))}}
	for pipeline := range t.Pipelines {
		t.Pipelines[pipeline].Model = 0
	}

	// A network has one byte. It loads in 1 ms if its weights are cached (warm), and in 3 ms otherwise (cold).
	for network := range t.Networks {
		t.Networks[network].Bytes = 1
		for range t.Kinds {
			t.Networks[network].LoadTimes = append(t.Networks[network].LoadTimes, [2]time.Duration{time.Millisecond, 3 * time.Millisecond})
		}
	}
	t.Instances = []policy.Instance{{MaxSequences: 2, TokenBudget: 8, ProgressTokens: 4, KVTokens: 1000}}
	for _, device := range t.DevicesOf(policytest.Write) {
		t.Devices[device].Instance = 0
	}
	t.Memory = make([]int64, len(t.Devices))
	if devices := t.DevicesOf(policytest.Split); len(devices) > 1 {
		t.Memory[devices[1]], t.Resident[devices[1]] = 2, []int32{policytest.Split}
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
