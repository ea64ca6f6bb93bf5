package vqueue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// Name is the name of the planned rule in plans and flags.
const Name = "vqueue"

// rules are the policies by name.
var rules = map[string]Rule{Name: Planned, "fcfs": FCFS, "edf": EDF, "shepherd": Shepherd}

// Names lists the policies, in order.
func Names() []string { return slices.Sorted(maps.Keys(rules)) }

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
	return RCT{
		Alpha: e.PromptNS / 1e9, Beta: e.OutputNS / 1e9, Intercept: e.InterceptNS / 1e9, Prefill: e.PrefillNS / 1e9, Decode: e.DecodeNS / 1e9, Alone: e.AloneNS / 1e9,
		Batch: e.Batch, PromptMean: e.PromptMean, PromptVar: e.PromptSD * e.PromptSD, OutputMean: e.OutputMean, OutputVar: e.OutputSD * e.OutputSD,
	}
}

// lacking says what the policies of this package could not follow in a plan.
func lacking(q *formats.QueuePlan, own *Tables, t *policy.Tables) error {
	devices := map[string]int{}
	for i := range q.Instances {
		in, at := &q.Instances[i], fmt.Sprintf("queue.instances[%d]", i)
		if len(in.Caps) > 0 {
			return &formats.Error{Path: at + ".caps", Found: "caps of classes", Expected: "none", Hint: "the policies " + strings.Join(Names(), ", ") + " know one limit for all classes, sequences"}
		}
		if tp := devices[in.Device]; tp > 0 && tp != in.TensorParallel {
			return &formats.Error{Path: at + ".tensor_parallel", Found: fmt.Sprint(in.TensorParallel), Expected: fmt.Sprintf("%d, as the instances before on %s", tp, in.Device), Hint: "there is one estimate for a model on a device"}
		}
		devices[in.Device] = in.TensorParallel
		for m := range t.Models {
			if slices.Contains(in.Models, t.Models[m].Name) && own.Estimator(len(t.Kinds), int32(m), false, t.Devices[i].Kind).Batch == 0 {
				return &formats.Error{Path: "queue.estimates", Found: fmt.Sprintf("none of %s on %s", t.Models[m].Name, in.Device), Expected: "one for each model of an instance on its device"}
			}
		}
	}
	return nil
}

// Parse makes the options of a policy from its name and the parameters of a plan:
//
//	group_scale    Delta, above 0; 4
//	by_deadline    1: members of a group by deadline; 0: by arrival
//	one_open       1: one open group per model for the fleet
//	append         1: new groups go to the end of the queue with the least work
//	on_violation   1: plans anew only where a violation is expected
//	every_s        seconds between re-plans, .01 to 3600; 1
//	admission      1: drops what is late before it starts
//	late_weight    what a second of lateness weighs beside a late request; .001
//	no_...         1: without pulling, eviction, state_swap, warm_start, balancing
//
// Without warm starts plans assume loads from storage; how long loads take is
// the instance's.
func Parse(name string, params map[string]float64) (Options, error) {
	rule, ok := rules[name]
	if !ok {
		return Options{}, fmt.Errorf("policy %q: expected one of %v", name, Names())
	}
	opt := Options{Rule: rule, Objective: Recommended}
	flags := map[string]func(){
		"by_deadline": func() { opt.Members = ByDeadline }, "one_open": func() { opt.OneOpen = true }, "append": func() { opt.Append = true },
		"on_violation": func() { opt.OnViolation = true }, "admission": func() { opt.Admission = true },
	}
	for l := range numLSOs {
		flags["no_"+l.String()] = func() { opt.Without[l] = true }
	}
	for _, key := range slices.Sorted(maps.Keys(params)) {
		v := params[key]
		set, flag := flags[key]
		bad := ""
		switch {
		case flag && v != 0 && v != 1:
			bad = "0 or 1"
		case flag && v == 1:
			set()
		case flag:
		case key == "group_scale":
			if opt.Delta = v; !(v > 0 && v <= 1000) {
				bad = "above 0, at most 1000"
			}
		case key == "every_s":
			if opt.Every = time.Duration(v * float64(time.Second)); !(v >= 0.01 && v <= 3600) {
				bad = ".01 to 3600"
			}
		case key == "late_weight":
			if opt.Objective.Tardy = v; !(v >= 0 && v <= 1000) {
				bad = "0 to 1000"
			}
		default:
			known := append(slices.Collect(maps.Keys(flags)), "every_s", "group_scale", "late_weight")
			slices.Sort(known)
			return opt, fmt.Errorf("policy %s: found the parameter %q, expected one of %s", name, key, strings.Join(known, ", "))
		}
		if bad != "" {
			return opt, fmt.Errorf("policy %s: parameter %s: found %g, expected %s", name, key, v, bad)
		}
	}
	return opt, nil
}
