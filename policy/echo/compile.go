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
func Compile(plan *formats.Plan, tables *policy.Tables) error {
	section, ok := plan.Section.(*formats.EchoPlan)
	if !ok || len(tables.Services) != formats.EchoServices || len(tables.Pipelines) != len(tables.Services) || len(tables.Stages) != len(tables.Services) {
		return &document.Error{Path: "deployment", Found: fmt.Sprintf("%d services on %d stages", len(tables.Services), len(tables.Stages)), Expected: fmt.Sprintf("%d, on a stage each", formats.EchoServices)}
	}
	served := section.ServedModels()[0]
	percentile, err := policy.ParsePercentile(served.Percentile)
	if err != nil {
		return err
	}
	tables.Models = []policy.Model{{Name: served.Model, SLO: served.SLOUS.D(), Percentile: percentile, RPS: served.RPS, NumPipelines: int32(len(tables.Pipelines))}}
	for pipeline := range tables.Pipelines {
		tables.Pipelines[pipeline].Model = 0
	}

	// A network has one byte. It loads in 1 ms if its weights are cached (warm), and in 3 ms otherwise (cold).
	for network := range tables.Networks {
		tables.Networks[network].Bytes = 1
		for range tables.Kinds {
			tables.Networks[network].LoadTimes = append(tables.Networks[network].LoadTimes, [2]time.Duration{time.Millisecond, 3 * time.Millisecond})
		}
	}
	tables.Instances = []policy.Instance{{MaxSequences: 2, TokenBudget: 8, ProgressTokens: 4, KVTokens: 1000}}
	for _, device := range tables.DevicesOf(policytest.Write) {
		tables.Devices[device].Instance = 0
	}
	tables.Memory = make([]int64, len(tables.Devices))
	if devices := tables.DevicesOf(policytest.Split); len(devices) > 1 {
		tables.Memory[devices[1]], tables.Resident[devices[1]] = 2, []int32{policytest.Split}
	}
	tables.KindTables = &Tables{}
	return nil
}

// New makes the policy.
func New(tables *policy.Tables, params map[string]float64) (policy.Policy, error) {
	for name := range params {
		return nil, fmt.Errorf("policy %s: unknown parameter %q, expected none", Name, name)
	}
	return policytest.NewDiamond(tables), nil
}

// Control says which tasks a request has.
func Control(*policy.Tables) policy.Control { return &policytest.DiamondControl{} }
