package workflow

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/predict"
)

// Route says how a task finds its device.
type Route uint8

const (
	// Earliest: where it ends first.
	Earliest Route = iota
	// Robin: the next device after that of the task before.
	Robin
	// Replicas: the better of two random replicas of its service, whose number
	// follows the load. That is reactive loading.
	Replicas
)

// Order says in which order a device runs what may run.
type Order uint8

const (
	// Placed: as placed, first come, first served.
	Placed Order = iota
	// ByRequest: by the deadline of the request, less the time that what is revealed
	// and expected behind the task takes at least. Where devices are booked ahead, as
	// Placed.
	ByRequest
	// ByCall: by a deadline of the task alone, when it was placed plus Slack times
	// its own time in a batch of one.
	ByCall
	// ByDeadline: as ByRequest, where devices are booked ahead, too.
	ByDeadline
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
	Route Route
	// Predict expects tasks ahead of their being revealed: they are placed, and
	// cause loads.
	Predict bool
	// Width is how many devices the search tries per task; 0: the one where the
	// task ends first, task after task.
	Width int
	// Rebind places what waits of a request anew at each of its reveals, also when
	// they came as expected.
	Rebind bool
	// ScaleOut loads a service where a task would rather be and memory is free,
	// beside that task's own way.
	ScaleOut bool
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
	Order  Order
	Slack  float64 // of ByCall
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

// scaleOutWait is the planned wait from which on a further copy of a service is
// worth a load.
const scaleOutWait = int64(50 * time.Millisecond)

// sure is the chance from which on a task is expected: more likely than not. What is
// placed for one that does not come is in the way of others.
const sure = .5

// dyorc is DyOrc with what was repaired.
var dyorc = Options{Predict: true, Width: 4, Rebind: true, ScaleOut: true, Thrift: true, Worth: true, Prediction: predict.Options{Sure: sure}}

// giving is a policy that gives up what will be late.
func giving(o Options, up Giving) Options {
	o.GiveUp = up
	return o
}

// admitting is a policy that admits what can be in time, serves it in the order of
// deadlines, full batches first where those can wait, and gives up what has lost all hope.
func admitting(o Options) Options {
	o.Admit, o.Full, o.Order, o.GiveUp = true, true, ByDeadline, Hopeless
	return o
}

// ordered is a policy whose devices run what may run in an order.
func ordered(o Options, by Order) Options {
	o.Order = by
	return o
}

// keeping is DyOrc with another rule for states of sessions.
func keeping(k Keeping) Options {
	o := dyorc
	o.Keep = k
	return o
}

// named are the policies that there are names for.
var named = []struct {
	name string
	opt  Options
}{
	{"dyorc", dyorc},
	{"dyorc-early", Options{Predict: true, Width: 4}},
	{"dyorc-rebind", Options{Predict: true, Width: 4, Rebind: true}},
	{"dyorc-sampled", Options{Predict: true, Width: 4, Prediction: predict.Options{Sampled: true}}},
	{"dyorc-last", Options{Predict: true, Width: 4, Prediction: predict.Options{LastOnly: true}}},
	{"dyorc-keep-state", keeping(All)},
	{"dyorc-drop-state", keeping(None)},
	{"greedy", Options{}},
	{"greedy-predict", Options{Predict: true}},
	{"greedy-scale", Options{ScaleOut: true}},
	{"round-robin", Options{Route: Robin}},
	{"reactive", Options{Route: Replicas}},
	{"static", Options{Static: true}},
	{"greedy-edf", Options{Order: ByCall}},
	{"static-edf", Options{Static: true, Order: ByCall}},
	{"dyorc-hopeless", giving(dyorc, Hopeless)},
	{"dyorc-drop", giving(dyorc, Late)},
	{"greedy-hopeless", Options{GiveUp: Hopeless}},
	{"greedy-drop", Options{GiveUp: Late}},
	{"dyorc-admit", admitting(dyorc)},
	{"greedy-admit", admitting(Options{})},
	{"dyorc-deadline", ordered(dyorc, ByRequest)},
}

// whole is the largest whole number that is exact as a parameter.
const whole = 1 << 53

// Make makes a policy by its name over the tables of a plan. Parameters: seed;
// ahead, the tasks of a request with those that are expected; slack, of deadlines of
// calls.
func Make(name string, t *policy.Tables, params map[string]float64) (*Policy, error) {
	opt, err := Named(name)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(params)) {
		v := params[key]
		switch {
		case key == "seed" && v >= 0 && v <= whole:
			opt.Seed, opt.Prediction.Seed = uint64(v), uint64(v)
		case key == "ahead" && v >= 1 && v <= 4096:
			opt.Ahead = int(v)
		case key == "slack" && v > 0 && v <= 1e6:
			opt.Slack = v
		case key == "give_up" && (v == 0 || v == 1 || v == 2):
			opt.GiveUp = [...]Giving{Never, Late, Hopeless}[int(v)]
		default:
			return nil, fmt.Errorf("policy %s: parameter %s is %v, expected seed (0 or more), ahead (1 to 4096), slack (more than 0) or give_up (0, 1 or 2)", name, key, v)
		}
	}
	if opt.Order == ByCall && opt.Slack == 0 {
		opt.Slack = 1
	}
	return New(t, opt), nil
}

// Default is the policy of a plan that names none.
const Default = "dyorc-admit"

// Names lists the policies of this package.
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
	names := Names()
	slices.Sort(names)
	return Options{}, fmt.Errorf("policy %q is not one for workflows, expected one of %v", name, names)
}
