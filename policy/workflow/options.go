package workflow

import (
	"fmt"
	"maps"
	"slices"

	"inferplan/policy"
	"inferplan/policy/predict"
)

// GiveUpRule says when a request that will be late is given up.
type GiveUpRule uint8

const (
	// GiveUpNever answers late requests, too.
	GiveUpNever GiveUpRule = iota
	// GiveUpHopeless gives up a request whose revealed tasks could not end in time even in batches of one that wait for
	// nothing but their inputs.
	GiveUpHopeless
	// GiveUpLate gives up a request one of whose revealed or expected tasks is expected to end after the deadline.
	GiveUpLate
)

// Options say how the policy decides.
type Options struct {
	// NewRouting returns a routing that gives tasks their devices. If it is nil, the search does.
	NewRouting func(devices DeviceView, seed uint64) Routing
	// ExpectTasks makes the policy expect tasks before they are revealed: they get devices, and cause networks to be loaded there.
	ExpectTasks bool
	// SearchWidth is the number of devices that the search tries per task. If it is 0, each task in turn gets the device on
	// which it ends first.
	SearchWidth int
	// ReplaceOnReveal places the waiting tasks of a request anew at each of its reveals, even if the revealed tasks were
	// expected.
	ReplaceOnReveal bool
	// PriceDeviceTime counts what the device time of a task costs other tasks. A task joins a batch rather than start its own where devices
	// are booked ahead, and where many devices are busy. A load that would evict other networks counts twice. A device on which
	// a language model would have to drain costs the task's own time once more. Nothing is expected while devices are booked
	// far ahead.
	PriceDeviceTime bool
	// StaticNetworks keeps the networks that devices hold at the start. Services that no device holds are still loaded.
	StaticNetworks bool
	// ByDeadline makes a device run tasks by the deadline of the request, less the least time of the revealed and expected
	// tasks that follow. Otherwise tasks run in the order in which they were placed.
	ByDeadline bool
	// OrderKey returns the queue key of a task, lowest first, in place of the orders above. It may be nil.
	OrderKey func(RankedTask) int64
	GiveUp   GiveUpRule
	// Admit refuses requests at the entry that could not be in time beside those already admitted.
	Admit bool
	// FullBatchFirst runs a full batch before the first task in a queue, if that task can wait.
	FullBatchFirst bool
	// KeepStates says what becomes of session states.
	KeepStates StateKeeping
	// EvictByValue evicts networks and states by what a copy saves, instead of by last use.
	EvictByValue bool
	// Prediction says how tasks are expected.
	Prediction predict.Options
	// MaxTasks bounds the number of tasks of a request, expected ones included. 0 stands for 16.
	MaxTasks int
	Seed     uint64
}

// expectThreshold is the chance from which on a task is expected: more likely than not. A load for a task that
// does not come is in the way of others.
const expectThreshold = .5

// dyorcOptions are those of DyOrc with our repairs.
var dyorcOptions = Options{ExpectTasks: true, SearchWidth: 4, ReplaceOnReveal: true, PriceDeviceTime: true, EvictByValue: true, Prediction: predict.Options{MinChance: expectThreshold}}

// withAdmission returns options with admission: requests that can be in time are admitted and served by deadline, full
// batches first where the others can wait, and hopeless requests are given up.
func withAdmission(options Options) Options {
	options.Admit, options.FullBatchFirst, options.ByDeadline, options.GiveUp = true, true, true, GiveUpHopeless
	return options
}

// namedPolicies lists the policies that have names, the default first.
var namedPolicies = []struct {
	name string
	opt  Options
}{
	{Default, withAdmission(dyorcOptions)},
	{"dyorc", dyorcOptions},
	{"greedy", Options{}},
	{"static", Options{StaticNetworks: true}},
}

// maxExactInteger is the largest integer up to which every integer is exact as a parameter, which is a float64.
const maxExactInteger = 1 << 53

// Make returns the policy with this name over the tables of a plan. Options.WithParams describes the parameters.
func Make(name string, planTables *policy.Tables, params map[string]float64) (*Policy, error) {
	opt, err := OptionsByName(name)
	if err != nil {
		return nil, err
	}
	if opt, err = opt.WithParams(params); err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return New(planTables, opt), nil
}

// WithParams returns the options with the parameters of a plan: seed; ahead, the most tasks of a request, revealed
// and predicted ones; give_up, when requests are given up (0 never, 1 late, 2 hopeless). It returns an error for
// another parameter or value.
func (o Options) WithParams(params map[string]float64) (Options, error) {
	for _, key := range slices.Sorted(maps.Keys(params)) {
		value := params[key]
		switch {
		case key == "seed" && value >= 0 && value <= maxExactInteger:
			o.Seed, o.Prediction.Seed = uint64(value), uint64(value)
		case key == "ahead" && value >= 1 && value <= 4096:
			o.MaxTasks = int(value)
		case key == "give_up" && (value == 0 || value == 1 || value == 2):
			o.GiveUp = [...]GiveUpRule{GiveUpNever, GiveUpLate, GiveUpHopeless}[int(value)]
		default:
			return o, fmt.Errorf("parameter %s is %v, expected seed (0 or more), ahead (1 to 4096) or give_up (0, 1 or 2)", key, value)
		}
	}
	return o, nil
}

// Default is the policy of a plan that names none.
const Default = "dyorc-admit"

// Names returns the names of the policies of this package, the default first.
func Names() []string {
	var out []string
	for i := range namedPolicies {
		out = append(out, namedPolicies[i].name)
	}
	return out
}

// OptionsByName returns the options of a named policy.
func OptionsByName(name string) (Options, error) {
	for i := range namedPolicies {
		if namedPolicies[i].name == name {
			return namedPolicies[i].opt, nil
		}
	}
	return Options{}, fmt.Errorf("policy %q is not one for workflows, expected one of %v", name, Names())
}
