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

// Names returns the names of the policies of this package, sorted.
func Names() []string { return slices.Sorted(maps.Keys(rulesByName)) }

// Compile adds the instances of a plan of queues to its tables, and its estimators if it has some.
// Without estimators the policies of this package refuse the tables. An estimator (RCT) gives the times of requests of a served model on a
// kind of device. There are two: for regular requests, and for mega prompts, which have MegaTokens tokens or more.
func Compile(plan *formats.Plan, planTables *policy.Tables) error {
	queuePlan := formats.QueueOf(plan)
	if err := planTables.AddInstances(queuePlan, plan.Pools); err != nil {
		return err
	}
	if len(queuePlan.Estimates) == 0 {
		return nil
	}

	// Add the estimators, and the devices that may serve each network: those with KV memory for it.
	queueTables := &Tables{RCT: make([]RCT, 2*len(planTables.Models)*len(planTables.Kinds)), MegaTokens: make([]int32, len(planTables.Models)), AllowedDevices: make([][]int32, len(planTables.Networks))}
	for deviceIndex := range planTables.Devices { // which is an instance of the plan, in order
		for modelIndex := range planTables.Models {
			queueTables.setEstimators(queuePlan.Estimates, int32(modelIndex), planTables.Models[modelIndex].Name, &queuePlan.Instances[deviceIndex], planTables.Devices[deviceIndex].Kind, len(planTables.Kinds))
		}
	}
	for deviceIndex := range planTables.Devices {
		for network, serverCosts := range planTables.Instances[deviceIndex].Server.Costs {
			if serverCosts.KVTokens > 0 { // 0 means that the network does not run there
				queueTables.AllowedDevices[network] = append(queueTables.AllowedDevices[network], int32(deviceIndex))
			}
		}
	}

	// Add caps of classes and limits for SLOs on the time per token. What the policies cannot follow is noted, and refused when one is made.
	queueTables.setCaps(queuePlan, planTables)
	queueTables.setConcurrency(planTables)
	queueTables.unsupported = findUnsupported(queuePlan, queueTables, planTables)
	planTables.KindTables = queueTables
	return nil
}

// setEstimators sets the regular and the mega estimator of a served model on the kind of device of an instance, by the plan's list of
// estimates; those for other models, devices or numbers of devices are passed over. Mega prompts are many times longer than others.
// Without an estimate for them, the regular one is used. name is the name of the model in the plan.
func (t *Tables) setEstimators(list []formats.QueueEstimate, model int32, name string, instance *formats.QueueInstance, kind int32, kinds int) {
	regular, mega := t.Estimator(kinds, model, regularRequest, kind), t.Estimator(kinds, model, megaPrompt, kind)
	for i := range list {
		estimate := &list[i]
		// An estimate with 0 is for any number of devices.
		isForNumber := estimate.TensorParallel == 0 || estimate.TensorParallel == instance.TensorParallel
		switch {
		case estimate.Model != name || estimate.Device != instance.Device || !isForNumber: // it is for others
		case estimate.MegaTokens > 0:
			t.MegaTokens[model], *mega = int32(estimate.MegaTokens), estimatorFrom(estimate)
		default:
			*regular = estimatorFrom(estimate)
		}
	}
	if mega.Batch == 0 {
		*mega = *regular
	}
}

// estimatorFrom converts a plan's estimate of completion times to the policy's estimator: nanoseconds and microseconds to seconds, standard
// deviations of lengths to variances. NoiseNS is a variance per time waited (squared ns per ns), so that it has the unit of a time.
// Each field has the same meaning as the one from which it is set: Alpha and Beta are the times per token of prompt and output.
func estimatorFrom(estimate *formats.QueueEstimate) RCT {
	estimator := RCT{
		Alpha: estimate.PromptNS / 1e9, Beta: estimate.OutputNS / 1e9, Intercept: estimate.InterceptNS / 1e9, Prefill: estimate.PrefillNS / 1e9, Decode: estimate.DecodeNS / 1e9, DecodeAlone: estimate.AloneNS / 1e9,
		Batch: estimate.Batch, PromptMean: estimate.PromptMean, PromptVar: estimate.PromptSD * estimate.PromptSD, OutputMean: estimate.OutputMean, OutputVar: estimate.OutputSD * estimate.OutputSD,
		FillShare: estimate.FillingShare, NoiseVariance: estimate.NoiseNS / 1e9, FittedWork: estimate.FittedNS / 1e9,
	}
	for _, residence := range estimate.ResidencesUS {
		estimator.Residences = append(estimator.Residences, residence.D().Seconds())
	}
	return estimator
}

// setCaps sets the caps of the plan: how many requests of a class may run at once on an instance.
// Caps has an entry for each device and served model, -1 without a cap. It stays nil if no instance of the plan has a cap.
func (t *Tables) setCaps(queuePlan *formats.QueuePlan, planTables *policy.Tables) {
	if !slices.ContainsFunc(queuePlan.Instances, func(instance formats.QueueInstance) bool { return len(instance.Caps) > 0 }) {
		return
	}

	// Devices of the tables are the plan's instances, in order.
	t.Caps = slices.Repeat([]int32{-1}, len(planTables.Devices)*len(planTables.Models))
	for deviceIndex := range queuePlan.Instances {
		for _, classCap := range queuePlan.Instances[deviceIndex].Caps {
			for modelIndex := range planTables.Models {
				if planTables.Models[modelIndex].Class == classCap.Class {
					t.Caps[deviceIndex*len(planTables.Models)+modelIndex] = int32(classCap.Sequences)
				}
			}
		}
	}
}

// setConcurrency limits how many requests may run at once beside one with an SLO on the time per token (TPOT), which grows with their
// number, so that the SLO is met. Models without such an SLO have no limit.
func (t *Tables) setConcurrency(planTables *policy.Tables) {
	for modelIndex := range planTables.Models {
		if planTables.Models[modelIndex].SLOFigure != formats.FigureTPOT {
			continue
		}
		if t.MaxSequences == nil {
			t.MaxSequences = make([]int32, len(planTables.Models)*len(planTables.Kinds))
		}
		for kindIndex := range planTables.Kinds {
			if estimator := t.Estimator(len(planTables.Kinds), int32(modelIndex), regularRequest, int32(kindIndex)); estimator.Batch > 0 {
				t.MaxSequences[modelIndex*len(planTables.Kinds)+kindIndex] = estimator.MaxConcurrency(toSeconds(planTables.Models[modelIndex].SLO), planTables.Models[modelIndex].Percentile)
			}
		}
	}
}

// findUnsupported returns an error that names the first part of a plan that the policies of this package cannot follow, or nil: instances
// of different sizes on one kind of device with one estimate for all, a model without an estimate, or a class that no instance serves.
func findUnsupported(queuePlan *formats.QueuePlan, queueTables *Tables, planTables *policy.Tables) error {
	for i := range queuePlan.Instances {
		instance, path := &queuePlan.Instances[i], fmt.Sprintf("queue.instances[%d]", i)
		isOtherSize := func(other formats.QueueInstance) bool {
			return other.Device == instance.Device && other.TensorParallel != instance.TensorParallel
		}
		isForAllSizes := func(estimate formats.QueueEstimate) bool {
			return estimate.Device == instance.Device && estimate.TensorParallel == 0 && slices.Contains(instance.Models, estimate.Model)
		}
		if other := slices.IndexFunc(queuePlan.Instances[:i], isOtherSize); other >= 0 && slices.ContainsFunc(queuePlan.Estimates, isForAllSizes) {
			return &document.Error{Path: path + ".tensor_parallel", Found: fmt.Sprint(instance.TensorParallel), Expected: fmt.Sprintf("%d, as the instances before on %s", queuePlan.Instances[other].TensorParallel, instance.Device), Hint: "estimates of several sizes state theirs (tensor_parallel): plan solve writes them"}
		}

		// Each model of the instance needs an estimator there; without one Batch is 0. Devices of the tables are the plan's instances, in order.
		for modelIndex := range planTables.Models {
			hasEstimator := queueTables.Estimator(len(planTables.Kinds), int32(modelIndex), regularRequest, planTables.Devices[i].Kind).Batch > 0
			if slices.Contains(instance.Models, planTables.Models[modelIndex].Name) && !hasEstimator {
				return &document.Error{Path: "queue.estimates", Found: fmt.Sprintf("none of %s on %d x %s", planTables.Models[modelIndex].Name, instance.TensorParallel, instance.Device), Expected: "one for each model of an instance on its device"}
			}
		}
	}
	return findClosedClass(queuePlan, queueTables, planTables)
}

// findClosedClass returns an error if caps of 0 keep a class away from every instance that has its model, because its requests would wait for ever.
func findClosedClass(queuePlan *formats.QueuePlan, queueTables *Tables, planTables *policy.Tables) error {
	for modelIndex := range planTables.Models {
		// Devices of the tables are the plan's instances, in order. The class is open on one that has the model and no cap of 0.
		isServed, isOpen := false, false
		for deviceIndex := range queuePlan.Instances {
			if slices.Contains(queuePlan.Instances[deviceIndex].Models, planTables.Models[modelIndex].Name) {
				isServed = true
				isOpen = isOpen || queueTables.Caps == nil || queueTables.Caps[deviceIndex*len(planTables.Models)+modelIndex] != 0
			}
		}
		if isServed && !isOpen {
			return &document.Error{Path: "queue.instances.caps", Found: fmt.Sprintf("a cap of 0 for %s on every instance of its model", planTables.Models[modelIndex].Key()), Expected: "one that serves the class"}
		}
	}
	return nil
}
