package fleet

import (
	"context"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
)

// Long is requests that come to equal instances faster than these take them, or not.
type Long struct {
	Instances, Requests int
	Load                float64 // times what the instances do
	Delta               float64 // of groups, in batches; 0 stands for the policy's own
	Rule                vqueue.QueueRule
	Seed                uint64
}

// MeasureLong runs requests with the lengths of the conversations, in turn, to
// instances of Vicuna-13B. Arrivals are Poisson, re-plans as long as `plan simulate`
// lets them be.
func (d *Data) MeasureLong(ctx context.Context, x *Long) (*Outcome, error) {
	e, err := d.calibrate(&Workloads[1])
	if err != nil {
		return nil, err
	}
	each, _ := e.plain[vicuna][a100].Work(1)
	c := &Case{Workload: &Workloads[1], Policy: &Policy{Options: vqueue.Options{GroupBatches: x.Delta, Rule: x.Rule}}, RPS: x.Load * float64(x.Instances) / each, Instances: x.Instances, Seed: x.Seed}
	rng, at := seeded.New(x.Seed, "fleet/long"), 0.0
	list := make([]arrivals.Request, x.Requests)
	for i := range list {
		at += rng.ExpFloat64() / c.RPS
		row := &d.Conversations[i%len(d.Conversations)]
		list[i] = arrivals.Request{ArrivedAt: time.Duration(at * 1e9), Model: int32(pick(Shares, rng.Float64())), PromptTokens: row.Prompt, OutputTokens: row.Output}
	}
	return c.run(ctx, e, list, 0, 0)
}

// Full is the requests a second that instances do of a workload of one model on A100s,
// by the estimator that is fitted to its lengths.
func (d *Data) Full(w *Workload, instances int) (float64, error) {
	e, err := d.calibrate(w)
	if err != nil {
		return 0, err
	}
	each, _ := e.plain[family(w.Models[0])][a100].Work(1)
	return float64(instances) / each, nil
}
