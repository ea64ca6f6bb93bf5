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

// Full is the requests a second that instances do of a workload whose models are on instances of one kind, by the
// estimators that are fitted to its lengths: each model has an equal part of the requests.
func (d *Data) Full(w *Workload, instances int) (float64, error) {
	e, err := d.calibrate(w)
	if err != nil {
		return 0, err
	}
	each := 0.0
	for _, model := range w.Models {
		kind := a100
		if family(model) == llama {
			kind = fourA100
		}
		work, _ := e.plain[family(model)][kind].Work(1)
		each += work / float64(len(w.Models))
	}
	return float64(instances) / each, nil
}
