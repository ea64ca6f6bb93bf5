package vqueue

import (
	"fmt"
	"maps"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// Name is the name of the policy with virtual queues in plans and flags.
const Name = "vqueue"

// rulesByName has the rules of the policies by name.
var rulesByName = map[string]QueueRule{Name: VirtualQueues, "fcfs": FCFS, "edf": EDF}

// Names returns the names of the policies, sorted.
func Names() []string { return slices.Sorted(maps.Keys(rulesByName)) }

// Compile adds the instances of a plan of queues to its tables, and its estimators if it has some. Without
// estimators the policies of this package refuse the tables.
func Compile(plan *formats.Plan, t *policy.Tables) error {
	q := formats.QueueOf(plan)
	if err := t.AddInstances(q, plan.Pools); err != nil {
		return err
	}
	if len(q.Estimates) == 0 {
		return nil
	}

	// Add the estimators, and the devices that may serve each network.
	queueTables := &Tables{RCT: make([]RCT, 2*len(t.Models)*len(t.Kinds)), MegaTokens: make([]int32, len(t.Models)), AllowedDevices: make([][]int32, len(t.Networks))}
	for m := range t.Models {
		for k, kind := range t.Kinds {
			queueTables.setEstimators(q.Estimates, int32(m), t.Models[m].Name, int32(k), kind, len(t.Kinds))
		}
	}
	for d := range t.Devices {
		for n, c := range t.Instances[d].Server.Costs {
			if c.KVTokens > 0 {
				queueTables.AllowedDevices[n] = append(queueTables.AllowedDevices[n], int32(d))
			}
		}
	}

	// Add caps of classes, limits for SLOs on the time per token, and a check.
	queueTables.setCaps(q, t)
	queueTables.setConcurrency(t)
	queueTables.unsupported = findUnsupported(q, queueTables, t)
	t.KindTables = queueTables
	return nil
}

// setEstimators sets the regular and the mega estimator of a served model on a kind of device. Without one for mega
// prompts, the regular one is used for them. Estimates of the plan for other models or devices are passed over.
func (o *Tables) setEstimators(list []formats.QueueEstimate, model int32, name string, kind int32, device string, kinds int) {
	regular, mega := o.Estimator(kinds, model, false, kind), o.Estimator(kinds, model, true, kind)
	for i := range list {
		switch e := &list[i]; {
		case e.Model != name || e.Device != device:
		case e.MegaTokens > 0:
			o.MegaTokens[model], *mega = int32(e.MegaTokens), estimatorFrom(e)
		default:
			*regular = estimatorFrom(e)
		}
	}
	if mega.Batch == 0 {
		*mega = *regular
	}
}

// estimatorFrom converts a plan's estimate of completion times to the policy's estimator: nanoseconds and
// microseconds to seconds, standard deviations to variances.
func estimatorFrom(e *formats.QueueEstimate) RCT {
	r := RCT{
		Alpha: e.PromptNS / 1e9, Beta: e.OutputNS / 1e9, Intercept: e.InterceptNS / 1e9, Prefill: e.PrefillNS / 1e9, Decode: e.DecodeNS / 1e9, DecodeAlone: e.AloneNS / 1e9,
		Batch: e.Batch, PromptMean: e.PromptMean, PromptVar: e.PromptSD * e.PromptSD, OutputMean: e.OutputMean, OutputVar: e.OutputSD * e.OutputSD,
		FillShare: e.FillingShare, NoiseVariance: e.NoiseNS / 1e9, FittedWork: e.FittedNS / 1e9,
	}
	for _, t := range e.ResidencesUS {
		r.Residences = append(r.Residences, t.D().Seconds())
	}
	return r
}

// setCaps sets the caps of the plan: how many requests of a class may run at once on an instance. Caps has an entry
// for each device and served model, -1 without a cap. It stays nil if no instance of the plan has a cap.
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

// setConcurrency limits how many requests may run at once beside one with an SLO on the time per token (TPOT),
// which grows with their number, so that the SLO is kept. Models without such an SLO have no limit.
func (o *Tables) setConcurrency(t *policy.Tables) {
	for m := range t.Models {
		if t.Models[m].SLOFigure != formats.FigureTPOT {
			continue
		}
		if o.MaxSequences == nil {
			o.MaxSequences = make([]int32, len(t.Models)*len(t.Kinds))
		}
		for k := range t.Kinds {
			if e := o.Estimator(len(t.Kinds), int32(m), false, int32(k)); e.Batch > 0 {
				o.MaxSequences[m*len(t.Kinds)+k] = e.MaxConcurrency(toSeconds(t.Models[m].SLO), t.Models[m].Percentile)
			}
		}
	}
}

// findUnsupported returns the first part of a plan that the policies of this package cannot follow, or nil:
// instances of different sizes on one kind, or a model without an estimate.
func findUnsupported(q *formats.QueuePlan, queueTables *Tables, t *policy.Tables) error {
	devices := map[string]int{}
	for i := range q.Instances {
		in, path := &q.Instances[i], fmt.Sprintf("queue.instances[%d]", i)
		if tp := devices[in.Device]; tp > 0 && tp != in.TensorParallel {
			return &document.Error{Path: path + ".tensor_parallel", Found: fmt.Sprint(in.TensorParallel), Expected: fmt.Sprintf("%d, as the instances before on %s", tp, in.Device), Hint: "there is one estimate for a model on a device"}
		}
		devices[in.Device] = in.TensorParallel
		for m := range t.Models {
			if slices.Contains(in.Models, t.Models[m].Name) && queueTables.Estimator(len(t.Kinds), int32(m), false, t.Devices[i].Kind).Batch == 0 {
				return &document.Error{Path: "queue.estimates", Found: fmt.Sprintf("none of %s on %s", t.Models[m].Name, in.Device), Expected: "one for each model of an instance on its device"}
			}
		}
	}
	return findClosedClass(q, queueTables, t)
}

// findClosedClass returns an error if caps of 0 keep a class away from every instance that has its model, because
// its requests would wait for ever.
func findClosedClass(q *formats.QueuePlan, queueTables *Tables, t *policy.Tables) error {
	for m := range t.Models {
		isServed := slices.ContainsFunc(q.Instances, func(in formats.QueueInstance) bool { return slices.Contains(in.Models, t.Models[m].Name) })
		isOpen := false
		for d := range q.Instances {
			isOpen = isOpen || slices.Contains(q.Instances[d].Models, t.Models[m].Name) && (queueTables.Caps == nil || queueTables.Caps[d*len(t.Models)+m] != 0)
		}
		if isServed && !isOpen {
			return &document.Error{Path: "queue.instances.caps", Found: fmt.Sprintf("a cap of 0 for %s on every instance of its model", t.Models[m].Key()), Expected: "one that serves the class"}
		}
	}
	return nil
}
