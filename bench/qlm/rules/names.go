package rules

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/policy/vqueue"
)

// rule is a policy by its name: options, instances of their own for models, and instances that come and go.
type rule struct {
	opt       vqueue.Options
	partition bool
	scale     Scale
}

// rules are the policies by name. Those that place requests in turn or at random
// plan within each queue (QLM, figure 14).
var rules = map[string]rule{
	"round-robin": {opt: vqueue.Options{DisabledLSOs: noBalancing}},
	"random":      {opt: vqueue.Options{DisabledLSOs: noBalancing, NewDealer: Random}},
	"shepherd":    {opt: vqueue.Options{NewDispatcher: Shepherd}},
	"partition":   {opt: vqueue.Options{Rule: vqueue.EDF}, partition: true},
	"gateway":     {opt: vqueue.Options{NewDispatcher: Gateway}, partition: true},
	"hash":        {opt: vqueue.Options{NewDispatcher: SessionHash}, partition: true},
	"hash-bound":  {opt: vqueue.Options{NewDispatcher: BoundedSessionHash}, partition: true},
	"chiron":      {opt: vqueue.Options{NewDispatcher: Gateway}, scale: Scale{From: 1, Pressure: chironPressure}},
}

// chironPressure keeps two instances of three free of interactive requests, for bursts.
const chironPressure = 1. / 3

// noBalancing leaves out the operation by which groups change queues.
var noBalancing = [len(vqueue.Options{}.DisabledLSOs)]bool{vqueue.Balancing: true}

// Random deals requests at random.
func Random(seed uint64) func(instances int) int {
	return seeded.New(seed, "vqueue/place").IntN
}

// Names lists the policies, in order.
func Names() []string { return slices.Sorted(maps.Keys(rules)) }

func init() {
	for _, name := range Names() {
		policies.Register(formats.PlanQueue, name, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
			return New(name, t, params)
		})
	}
}

// scales are the parameters of instances that come and go: how many are on from the start (0 stands for all, always),
// after how many seconds a further one works, how many it idles before it goes off, and Scale.Pressure.
var scales = map[string]struct {
	from, to float64
	set      func(s *Scale, v float64)
}{
	"scale_from":     {0, 1e6, func(s *Scale, v float64) { s.From = int(v) }},
	"scale_delay_s":  {0, 3600, func(s *Scale, v float64) { s.Delay = seconds(v) }},
	"scale_pressure": {0, 1, func(s *Scale, v float64) { s.Pressure = v }},
	"scale_hold_s":   {0.01, 86400, func(s *Scale, v float64) { s.Hold = seconds(v) }},
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// New makes a policy by its name, with the parameters of virtual queues and of scales.
func New(name string, t *policy.Tables, params map[string]float64) (policy.Policy, error) {
	r, common := rules[name], maps.Clone(params)
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if n, ok := scales[key]; ok {
			v := params[key]
			if !(v >= n.from && v <= n.to) {
				return nil, fmt.Errorf("policy %s: parameter %s: found %g, expected %g to %g", name, key, v, n.from, n.to)
			}
			n.set(&r.scale, v)
			delete(common, key)
		}
	}
	opt, err := r.opt.WithParameters(name, common)
	if err != nil {
		return nil, err
	}
	if r.partition && vqueue.TablesOf(t) != nil {
		opt.AllowedDevices = Partition(t)
	}
	if err := oneLimit(t); name == "shepherd" && err != nil {
		return nil, err
	}
	if r.scale.From > len(t.Instances) {
		return nil, fmt.Errorf("policy %s: scale_from: found %d, expected 0 to %d, the number of instances", name, r.scale.From, len(t.Instances))
	}
	if r.scale.From > 0 {
		opt.NewScaler = func(s *vqueue.InstanceControl) vqueue.Scaler { return NewScaling(s, r.scale) }
	}
	return vqueue.New(t, opt)
}

// oneLimit refuses caps of classes, which batches that are filled once do not know.
func oneLimit(t *policy.Tables) error {
	if own := vqueue.TablesOf(t); own != nil && own.Caps != nil {
		return &document.Error{Path: "queue.instances.caps", Found: "caps of classes", Expected: "none", Hint: "batches that are filled once know one limit for all classes"}
	}
	return nil
}
