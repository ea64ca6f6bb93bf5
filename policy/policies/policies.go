package policies

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/balance"
	"inferplan/policy/drop"
	"inferplan/policy/flow"
	"inferplan/policy/gear"
	"inferplan/policy/reactive"
	"inferplan/policy/reserve"
	"inferplan/policy/vqueue"
	"inferplan/policy/workflow"
)

// Default is the policy of a plan that names none.
const Default = reserve.Name

// kind is what plans of a kind have at run time.
type kind struct {
	name string
	of   string // behind the name: which plans of the kind
	// compile adds the kind's own tables to the shared ones; nil: it has none.
	compile func(plan *formats.Plan, t *policy.Tables) error
	// owns tells the kind's tables from others.
	owns func(t *policy.Tables) bool
	// control says which tasks a request has next; nil: one task per request.
	control func(t *policy.Tables) policy.Control
	makers  map[string]maker
	// offered are the policies that users choose among, the default first. Others are
	// ablations and readings for benchmarks. nil: all of them.
	offered []string
}

// maker makes a policy with the parameters of a plan.
type maker func(t *policy.Tables, params map[string]float64) (policy.Policy, error)

// kinds is the only list of what plans may be at run time, the default first.
var kinds = []kind{
	{
		name:    formats.PlanPool,
		offered: []string{reserve.Name, artifact.Name, reactive.Name},
		owns:    func(t *policy.Tables) bool { return t.Own == nil && len(t.Instances) == 0 },
		makers: map[string]maker{
			artifact.Name: func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
				return artifact.New(t, params)
			},
			reactive.Name: func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
				return reactive.New(t, params)
			},
			reserve.Name: func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
				opt, err := reserve.ParseOptions(params)
				if err != nil {
					return nil, err
				}
				return reserve.New(t, opt), nil
			},
		},
	},
	{
		name:    formats.PlanGear,
		compile: gear.Compile,
		owns:    func(t *policy.Tables) bool { return gear.Of(t) != nil },
		makers: map[string]maker{
			gear.Name: func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
				opt, err := gear.ParseOptions(t, params)
				if err != nil {
					return nil, err
				}
				return gear.New(t, opt)
			},
		},
	},
	{
		name:    formats.PlanFlow,
		of:      " with modules",
		compile: flow.Compile,
		owns:    func(t *policy.Tables) bool { return flow.Of(t) != nil },
		control: flow.NewControl,
		makers:  droppers(),
		offered: []string{drop.Default, "pard", "nexus", "clipper++", "naive"},
	},
	{
		name:    formats.PlanFlow,
		of:      " with segments",
		owns:    func(t *policy.Tables) bool { return flow.WorkflowsOf(t) != nil },
		control: flow.NewWalk,
		makers:  workflows(),
		offered: []string{workflow.Default, "dyorc", "dyorc-drop", "greedy", "static", "reactive"},
	},
	{
		name:    formats.PlanQueue,
		compile: vqueue.Compile,
		owns:    func(t *policy.Tables) bool { return len(t.Instances) > 0 },
		makers:  queues(),
	},
}

// queues makes the policies of instances of language models.
func queues() map[string]maker {
	out := map[string]maker{
		balance.Name: func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
			if len(params) > 0 {
				return nil, fmt.Errorf("policy %s has no parameters, found %v", balance.Name, slices.Sorted(maps.Keys(params)))
			}
			return balance.New(t), nil
		},
	}
	out[balance.PriorityName] = func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
		if len(params) > 0 {
			return nil, fmt.Errorf("policy %s has no parameters, found %v", balance.PriorityName, slices.Sorted(maps.Keys(params)))
		}
		return balance.NewPriority(t)
	}
	for _, name := range vqueue.Names() {
		out[name] = func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
			opt, err := vqueue.Parse(name, params)
			if err != nil {
				return nil, err
			}
			return vqueue.New(t, opt)
		}
	}
	return out
}

// droppers makes the policies of applications.
func droppers() map[string]maker {
	out := map[string]maker{}
	for _, name := range drop.Names() {
		out[name] = func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
			return drop.New(name, t, params)
		}
	}
	return out
}

// workflows makes the policies of workflows.
func workflows() map[string]maker {
	out := map[string]maker{}
	for _, name := range workflow.Names() {
		out[name] = func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
			return workflow.Make(name, t, params)
		}
	}
	return out
}

// Compile makes the tables of a plan: the shared ones and those of its kind.
func Compile(plan *formats.Plan) (*policy.Tables, error) {
	return CompileOn(plan, policy.TopologyNodes)
}

// CompileOn is Compile on a given topology.
func CompileOn(plan *formats.Plan, topology policy.Topology) (*policy.Tables, error) {
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == plan.Kind })
	if at < 0 && plan.Kind != "" {
		var names []string
		for _, k := range kinds {
			names = append(names, strconv.Quote(k.name))
		}
		names = slices.Compact(names)
		return nil, fmt.Errorf("compiling the plan: %w", &formats.Error{Path: "kind", Found: strconv.Quote(plan.Kind), Expected: strings.Join(names, " or "),
			Hint: "plans of other kinds have no run-time tables so far"})
	}
	t, err := policy.CompileOn(plan, topology)
	if err != nil {
		return nil, err
	}
	if compile := kinds[max(0, at)].compile; compile != nil {
		if err := compile(plan, t); err != nil {
			return nil, fmt.Errorf("compiling the plan: %w", err)
		}
	}
	return t, nil
}

// Control makes what says which tasks the requests of a plan have; nil where
// every request has one task. Every run needs one of its own.
func Control(t *policy.Tables) policy.Control {
	for _, k := range kinds {
		if k.control != nil && k.owns(t) {
			return k.control(t)
		}
	}
	return nil
}

// SimulatedOnly tells whether a policy runs parts of pipelines, which the
// executor does not.
func SimulatedOnly(name string) bool { return name == reactive.Name }

// Served is a plan's policy as it is served, with its parameters: a plan made
// from imported times names no guards, and real devices need them. Clients of
// applications are told as soon as there is no hope.
func Served(spec formats.PolicySpec) formats.PolicySpec {
	if spec.Name == "" {
		spec.Name = Default
	}
	if spec.Name == reserve.Name {
		spec.Params = reserve.WithGuards(spec.Params)
	}
	if spec.Name == drop.Default {
		spec.Params = drop.Promptly(spec.Params)
	}
	return spec
}

// names are the policies that users of a kind choose among.
func (k *kind) names() []string {
	if k.offered != nil {
		return k.offered
	}
	return slices.Sorted(maps.Keys(k.makers))
}

// Names lists the policies that users choose among, in order.
func Names() []string {
	var names []string
	for i := range kinds {
		names = append(names, kinds[i].names()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Help lists them by the plans that they are of.
func Help() string {
	var list []string
	for i := range kinds {
		list = append(list, kinds[i].name+kinds[i].of+": "+strings.Join(kinds[i].names(), ", "))
	}
	return strings.Join(list, "; ")
}

// unknown says of a policy that it runs no plans of the kind that the tables are of, and
// which do.
func unknown(name string, t *policy.Tables) error {
	var others []string // kinds that have a policy of the name
	for i := range kinds {
		if k := &kinds[i]; k.makers[name] != nil {
			others = append(others, k.name+k.of)
		}
	}
	at := max(0, slices.IndexFunc(kinds, func(k kind) bool { return k.owns(t) }))
	found, names := strconv.Quote(name), kinds[at].names()
	if len(others) > 0 {
		found += " of plans of kind " + strings.Join(others, " or ") + ", and the plan is of another kind"
	}
	return &formats.Error{Path: "policy.name", Found: found, Expected: "one of " + strings.Join(names, ", "), Hint: formats.DidYouMean(name, names)}
}

// New makes the policy that spec asks for over a plan's tables. Every run
// needs one of its own.
func New(spec formats.PolicySpec, t *policy.Tables) (policy.Policy, error) {
	name := spec.Name
	if name == "" {
		name = Default
	}
	for _, k := range kinds {
		if mk, ok := k.makers[name]; ok && k.owns(t) {
			p, err := mk(t, spec.Params)
			if err != nil && len(formats.Findings(err)) == 0 {
				err = &formats.Error{Path: "policy.params", Found: err.Error()}
			}
			return p, err
		}
	}
	return nil, unknown(name, t)
}
