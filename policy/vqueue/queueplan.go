package vqueue

import (
	"fmt"
	"maps"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// Name is the name of the planned rule in plans and flags.
const Name = "vqueue"

// named are the policies by name.
var named = map[string]Rule{Name: Planned, "fcfs": FCFS, "edf": EDF}

// Names lists the policies, in order.
func Names() []string { return slices.Sorted(maps.Keys(named)) }

// Compile adds the instances of a plan of queues, and its estimators where it has
// some. Without them the policies of this package refuse the tables.
func Compile(plan *formats.Plan, t *policy.Tables) error {
	q := formats.QueueOf(plan)
	if err := t.AddInstances(q, plan.Pools); err != nil {
		return err
	}
	if len(q.Estimates) == 0 {
		return nil
	}
	own := &Tables{RCT: make([]RCT, 2*len(t.Models)*len(t.Kinds)), Mega: make([]int32, len(t.Models)), Only: make([][]int32, len(t.Networks))}
	for m := range t.Models {
		for k, kind := range t.Kinds {
			own.estimate(q.Estimates, int32(m), t.Models[m].Name, int32(k), kind, len(t.Kinds))
		}
	}
	for d := range t.Devices {
		for n, c := range t.Instances[d].Server.Costs {
			if c.KV > 0 {
				own.Only[n] = append(own.Only[n], int32(d))
			}
		}
	}
	own.setCaps(q, t)
	own.setConcurrency(t)
	own.lacks = lacking(q, own, t)
	t.Own = own
	return nil
}

// estimate sets the estimators of a served model on a kind of device.
func (o *Tables) estimate(list []formats.QueueEstimate, model int32, name string, kind int32, device string, kinds int) {
	plain, mega := o.Estimator(kinds, model, false, kind), o.Estimator(kinds, model, true, kind)
	for i := range list {
		switch e := &list[i]; {
		case e.Model != name || e.Device != device:
		case e.MegaTokens > 0:
			o.Mega[model], *mega = int32(e.MegaTokens), rct(e)
		default:
			*plain = rct(e)
		}
	}
	if mega.Batch == 0 {
		*mega = *plain
	}
}

func rct(e *formats.QueueEstimate) RCT {
	r := RCT{
		Alpha: e.PromptNS / 1e9, Beta: e.OutputNS / 1e9, Intercept: e.InterceptNS / 1e9, Prefill: e.PrefillNS / 1e9, Decode: e.DecodeNS / 1e9, Alone: e.AloneNS / 1e9,
		Batch: e.Batch, PromptMean: e.PromptMean, PromptVar: e.PromptSD * e.PromptSD, OutputMean: e.OutputMean, OutputVar: e.OutputSD * e.OutputSD,
		Filling: e.Filling, Noise: e.NoiseNS / 1e9, Fitted: e.FittedNS / 1e9,
	}
	for _, t := range e.ResidencesUS {
		r.Stays = append(r.Stays, t.D().Seconds())
	}
	return r
}

// setCaps takes over the caps of classes, where there are any.
func (o *Tables) setCaps(q *formats.QueuePlan, t *policy.Tables) {
	if !slices.ContainsFunc(q.Instances, func(in formats.QueueInstance) bool { return len(in.Caps) > 0 }) {
		return
	}
	o.Caps = slices.Repeat([]int32{-1}, len(t.Devices)*len(t.Models))
	for d := range q.Instances {
		for _, c := range q.Instances[d].Caps {
			for m := range t.Models {
				if t.Models[m].Class == c.Class {
					o.Caps[d*len(t.Models)+m] = int32(c.Sequences)
				}
			}
		}
	}
}

// setConcurrency has no more requests run beside one with an SLO on the time per
// token than keep it, where there are any.
func (o *Tables) setConcurrency(t *policy.Tables) {
	for m := range t.Models {
		if t.Models[m].Of != formats.OfTPOT {
			continue
		}
		if o.Sequences == nil {
			o.Sequences = make([]int32, len(t.Models)*len(t.Kinds))
		}
		for k := range t.Kinds {
			if e := o.Estimator(len(t.Kinds), int32(m), false, int32(k)); e.Batch > 0 {
				o.Sequences[m*len(t.Kinds)+k] = e.Concurrency(seconds(t.Models[m].SLO), t.Models[m].Percentile)
			}
		}
	}
}

// lacking says what the policies of this package could not follow in a plan.
func lacking(q *formats.QueuePlan, own *Tables, t *policy.Tables) error {
	devices := map[string]int{}
	for i := range q.Instances {
		in, at := &q.Instances[i], fmt.Sprintf("queue.instances[%d]", i)
		if tp := devices[in.Device]; tp > 0 && tp != in.TensorParallel {
			return &document.Error{Path: at + ".tensor_parallel", Found: fmt.Sprint(in.TensorParallel), Expected: fmt.Sprintf("%d, as the instances before on %s", tp, in.Device), Hint: "there is one estimate for a model on a device"}
		}
		devices[in.Device] = in.TensorParallel
		for m := range t.Models {
			if slices.Contains(in.Models, t.Models[m].Name) && own.Estimator(len(t.Kinds), int32(m), false, t.Devices[i].Kind).Batch == 0 {
				return &document.Error{Path: "queue.estimates", Found: fmt.Sprintf("none of %s on %s", t.Models[m].Name, in.Device), Expected: "one for each model of an instance on its device"}
			}
		}
	}
	return closedOut(q, own, t)
}

// closedOut is a class that caps keep away from every instance of its model.
func closedOut(q *formats.QueuePlan, own *Tables, t *policy.Tables) error {
	for m := range t.Models {
		served := slices.ContainsFunc(q.Instances, func(in formats.QueueInstance) bool { return slices.Contains(in.Models, t.Models[m].Name) })
		open := false
		for d := range q.Instances {
			open = open || slices.Contains(q.Instances[d].Models, t.Models[m].Name) && (own.Caps == nil || own.Caps[d*len(t.Models)+m] != 0)
		}
		if served && !open {
			return &document.Error{Path: "queue.instances.caps", Found: fmt.Sprintf("a cap of 0 for %s on every instance of its model", t.Models[m].Key()), Expected: "one that serves the class"}
		}
	}
	return nil
}
