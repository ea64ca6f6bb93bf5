package workflow

import (
	"fmt"
	"maps"
	"slices"

	"inferplan/policy"
	"inferplan/policy/predict"
)

// Giving says when a request that will be late is given up.
type Giving uint8

const (
	// Never: late answers are answers.
	Never Giving = iota
	// Hopeless: what is revealed of it could not end in time in batches of one that
	// wait for nothing.
	Hopeless
	// Late: what is revealed or expected of it ends late where it has been placed.
	Late
)

// Options say how the policy decides.
type Options struct {
	// Route makes what gives tasks their devices; nil: the search does.
	Route func(devices Devices, seed uint64) Routing
	// Predict expects tasks ahead of their being revealed: they are placed, and
	// cause loads.
	Predict bool
	// Width is how many devices the search tries per task; 0: the one where the
	// task ends first, task after task.
	Width int
	// Rebind places what waits of a request anew at each of its reveals, also when
	// they came as expected.
	Rebind bool
	// Thrift counts what a place costs others: a task joins a batch rather than
	// have one of its own where devices are busy, the more so the longer they are
	// booked ahead, and with others of its request, the more so the more of the devices
	// are busy. A load that would take the room of others counts twice.
	// Where a language model would have to drain, the place costs a task's own time more.
	// Nothing is expected any more where devices are booked far ahead.
	Thrift bool
	// Static keeps what is on the devices at the start. Services that no device
	// has are still loaded.
	Static bool
	// ByDeadline has a device run what may run by the deadline of the request, less the time that
	// what is revealed and expected behind the task takes at least; otherwise as placed.
	ByDeadline bool
	// Rank gives another order, lowest first; nil: none.
	Rank   func(Candidate) int64
	GiveUp Giving
	// Admit refuses at the entry what could not be in time beside all that was admitted.
	Admit bool
	// Full has a full batch run before the first task in a queue, where that can wait.
	Full bool
	// Keep says what becomes of the states of sessions.
	Keep Keeping
	// Worth makes room by what a copy saves, instead of by last use.
	Worth bool
	// Prediction says how tasks are expected.
	Prediction predict.Options
	// Ahead bounds the tasks of a request with those expected; 0: 16.
	Ahead int
	Seed  uint64
}

// sure is the chance from which on a task is expected: more likely than not. What is
// placed for one that does not come is in the way of others.
const sure = .5

// dyorc is DyOrc with what was repaired.
var dyorc = Options{Predict: true, Width: 4, Rebind: true, Thrift: true, Worth: true, Prediction: predict.Options{Sure: sure}}

// admitting is a policy that admits what can be in time, serves it in the order of
// deadlines, full batches first where those can wait, and gives up what has lost all hope.
func admitting(o Options) Options {
	o.Admit, o.Full, o.ByDeadline, o.GiveUp = true, true, true, Hopeless
	return o
}

// named are the policies that there are names for, the default first.
var named = []struct {
	name string
	opt  Options
}{
	{Default, admitting(dyorc)},
	{"dyorc", dyorc},
	{"greedy", Options{}},
	{"static", Options{Static: true}},
}

// whole is the largest whole number that is exact as a parameter.
const whole = 1 << 53

// Make makes a policy by its name over the tables of a plan, with the parameters of With.
func Make(name string, t *policy.Tables, params map[string]float64) (*Policy, error) {
	opt, err := Named(name)
	if err != nil {
		return nil, err
	}
	if opt, err = opt.With(params); err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return New(t, opt), nil
}

// With returns options with the parameters of a plan: seed; ahead, the tasks of a request with those that
// are expected; give_up, when requests are given up.
func (o Options) With(params map[string]float64) (Options, error) {
	for _, key := range slices.Sorted(maps.Keys(params)) {
		v := params[key]
		switch {
		case key == "seed" && v >= 0 && v <= whole:
			o.Seed, o.Prediction.Seed = uint64(v), uint64(v)
		case key == "ahead" && v >= 1 && v <= 4096:
			o.Ahead = int(v)
		case key == "give_up" && (v == 0 || v == 1 || v == 2):
			o.GiveUp = [...]Giving{Never, Late, Hopeless}[int(v)]
		default:
			return o, fmt.Errorf("parameter %s is %v, expected seed (0 or more), ahead (1 to 4096) or give_up (0, 1 or 2)", key, v)
		}
	}
	return o, nil
}

// Default is the policy of a plan that names none.
const Default = "dyorc-admit"

// Names lists the policies of this package, the default first.
func Names() []string {
	var out []string
	for i := range named {
		out = append(out, named[i].name)
	}
	return out
}

// Named are the options of a policy by its name.
func Named(name string) (Options, error) {
	for i := range named {
		if named[i].name == name {
			return named[i].opt, nil
		}
	}
	return Options{}, fmt.Errorf("policy %q is not one for workflows, expected one of %v", name, Names())
}
