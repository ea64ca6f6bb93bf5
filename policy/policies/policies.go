package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/balance"
	"inferplan/policy/drop"
	"inferplan/policy/flow"
	"inferplan/policy/gear"
	"inferplan/policy/reserve"
	"inferplan/policy/underway"
	"inferplan/policy/vqueue"
	"inferplan/policy/workflow"
)

// Default is the name of the policy of a plan that names none.
const Default = reserve.Name

// planKind is the run-time side of a kind of plans, or of a variant of it.
type planKind struct {
	name    string
	variant string // text behind the name that says which variant of the kind it is
	// compile adds the kind's own tables to the shared ones. If it has none, compile is nil.
	compile func(plan *formats.Plan, t *policy.Tables) error
	// ownsTables reports whether tables are those of the kind.
	ownsTables func(t *policy.Tables) bool
	// newControl returns the Control of the requests' tasks. If every request has one task, it is nil.
	newControl func(t *policy.Tables) policy.Control
	makers     []namedPolicy // policies; the first is the default
}

// namedPolicy is a policy with its name.
type namedPolicy struct {
	name      string
	newPolicy PolicyMaker
}

// PolicyMaker returns a policy over the tables of a plan, with the plan's parameters.
type PolicyMaker func(t *policy.Tables, params map[string]float64) (policy.Policy, error)

// planKinds is the only list of the kinds of plans at run time. The first is the default.
var planKinds = []planKind{
	{
		name:       formats.PlanPool,
		ownsTables: func(t *policy.Tables) bool { return t.KindTables == nil && len(t.Instances) == 0 },
		makers: []namedPolicy{
			{reserve.Name, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
				opt, err := reserve.ParseOptions(params)
				if err != nil {
					return nil, err
				}
				return reserve.New(t, opt), nil
			}},
			{artifact.Name, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
				return artifact.New(t, params)
			}},
		},
	},
	{
		name:       formats.PlanGear,
		compile:    gear.Compile,
		ownsTables: func(t *policy.Tables) bool { return gear.TablesOf(t) != nil },
		makers: []namedPolicy{{gear.Name, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
			opt, err := gear.ParseOptions(t, params)
			if err != nil {
				return nil, err
			}
			return gear.New(t, opt)
		}}},
	},
	{
		name:       formats.PlanFlow,
		variant:    " with modules",
		compile:    flow.Compile,
		ownsTables: func(t *policy.Tables) bool { return flow.GraphTablesOf(t) != nil },
		newControl: flow.NewGraphControl,
		makers:     makersByName(drop.Names(), drop.New),
	},
	{
		name:       formats.PlanFlow,
		variant:    " with segments",
		ownsTables: func(t *policy.Tables) bool { return flow.WorkflowTablesOf(t) != nil },
		newControl: flow.NewWorkflowControl,
		makers:     makersByName(workflow.Names(), workflow.Make),
	},
	{
		name:       formats.PlanQueue,
		compile:    vqueue.Compile,
		ownsTables: func(t *policy.Tables) bool { return len(t.Instances) > 0 },
		makers: append([]namedPolicy{
			{balance.Name, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
				return balance.New(t), underway.RejectParameters(balance.Name, params)
			}},
			{balance.PriorityName, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
				if err := underway.RejectParameters(balance.PriorityName, params); err != nil {
					return nil, err
				}
				return balance.NewPriority(t)
			}},
		}, makersByName(vqueue.Names(), func(name string, t *policy.Tables, params map[string]float64) (*vqueue.Policy, error) {
			opt, err := vqueue.ParseOptions(name, params)
			if err != nil {
				return nil, err
			}
			return vqueue.New(t, opt)
		})...),
	},
}

// makersByName returns the policies of a package whose constructor takes their name as its first argument, in the
// form of the list of policies.
func makersByName[P policy.Policy](names []string, newPolicy func(name string, tables *policy.Tables, params map[string]float64) (P, error)) []namedPolicy {
	var policies []namedPolicy
	for _, name := range names {
		policies = append(policies, namedPolicy{name, func(tables *policy.Tables, params map[string]float64) (policy.Policy, error) {
			return newPolicy(name, tables, params)
		}})
	}
	return policies
}

// Register adds a policy with which an instrument compares, for plans of a kind as NamesByKind lists it: pool,
// gear, flow with modules, flow with segments or queue. It has to be called before any policy is made. It panics
// for an unknown kind, or if the name is registered twice.
func Register(kind, name string, newPolicy PolicyMaker) {
	for i := range planKinds {
		if entry := &planKinds[i]; entry.name+entry.variant == kind {
			if entry.makerOf(name) != nil {
				panic(fmt.Sprintf("policies: %s is registered twice for plans of kind %s", name, kind))
			}
			entry.makers = append(entry.makers, namedPolicy{name, newPolicy})
			return
		}
	}
	panic(fmt.Sprintf("policies: %s is registered for plans of kind %s, which is none", name, kind))
}

// makerOf returns the function that makes the policy of this name. If the kind has none of that name, it returns nil.
func (k *planKind) makerOf(name string) PolicyMaker {
	if index := slices.IndexFunc(k.makers, func(maker namedPolicy) bool { return maker.name == name }); index >= 0 {
		return k.makers[index].newPolicy
	}
	return nil
}

// Compile returns the tables of a plan: the shared ones and those of its kind.
func Compile(plan *formats.Plan) (*policy.Tables, error) {
	return CompileOn(plan, policy.TopologyNodes)
}

// CompileOn compiles a plan of any kind into run-time tables, with a given topology of links. It returns an error
// for a kind that has no policies.
func CompileOn(plan *formats.Plan, topology policy.Topology) (*policy.Tables, error) {
	index := slices.IndexFunc(planKinds, func(kind planKind) bool { return kind.name == plan.Kind })
	if index < 0 && plan.Kind != "" {
		var names []string
		for _, kind := range planKinds {
			names = append(names, strconv.Quote(kind.name))
		}
		names = slices.Compact(names)
		return nil, fmt.Errorf("compiling the plan: %w", &document.Error{Path: "kind", Found: strconv.Quote(plan.Kind), Expected: strings.Join(names, " or "),
			Hint: "plans of other kinds have no run-time tables so far"})
	}

	// Compile the shared tables, then those of the kind. A plan without a kind has the first one of the list.
	tables, err := policy.CompileOn(plan, topology)
	if err != nil {
		return nil, err
	}
	if compile := planKinds[max(0, index)].compile; compile != nil {
		if err := compile(plan, tables); err != nil {
			return nil, fmt.Errorf("compiling the plan: %w", err)
		}
	}
	return tables, nil
}

// NewControl returns the Control of a plan's requests. If every request has one task, it returns nil. Every run
// needs a Control of its own.
func NewControl(tables *policy.Tables) policy.Control {
	for _, kind := range planKinds {
		if kind.newControl != nil && kind.ownsTables(tables) {
			return kind.newControl(tables)
		}
	}
	return nil
}

// SpecForServing returns a plan's policy with the parameters for serving. Plans that were made from imported times
// name no guards, which real devices need. Clients of applications are told at once when a request cannot be in
// time.
func SpecForServing(spec formats.PolicySpec) formats.PolicySpec {
	if spec.Name == "" {
		spec.Name = Default
	}
	if spec.Name == reserve.Name {
		spec.Params = reserve.WithGuards(spec.Params)
	}
	if spec.Name == drop.Default {
		spec.Params = drop.ServingParams(spec.Params)
	}
	return spec
}

// policyNames returns the names of the policies for plans of this kind, the default first.
func (k *planKind) policyNames() []string {
	var names []string
	for _, maker := range k.makers {
		names = append(names, maker.name)
	}
	return names
}

// Names returns the names of the policies of all kinds, sorted.
func Names() []string {
	var names []string
	for i := range planKinds {
		names = append(names, planKinds[i].policyNames()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// NamesByKind returns a text with the names of the policies by kind of plan.
func NamesByKind() string {
	var list []string
	for i := range planKinds {
		list = append(list, planKinds[i].name+planKinds[i].variant+": "+strings.Join(planKinds[i].policyNames(), ", "))
	}
	return strings.Join(list, "; ")
}

// unknownPolicyError returns an error that a policy does not run plans of the tables' kind, with the kinds whose
// plans it runs.
func unknownPolicyError(name string, tables *policy.Tables) error {
	var otherKinds []string // kinds that have a policy of the name
	for i := range planKinds {
		if kind := &planKinds[i]; kind.makerOf(name) != nil {
			otherKinds = append(otherKinds, kind.name+kind.variant)
		}
	}
	index := max(0, slices.IndexFunc(planKinds, func(kind planKind) bool { return kind.ownsTables(tables) }))
	found, names := strconv.Quote(name), planKinds[index].policyNames()
	if len(otherKinds) > 0 {
		found += " of plans of kind " + strings.Join(otherKinds, " or ") + ", and the plan is of another kind"
	}
	return &document.Error{Path: "policy.name", Found: found, Expected: "one of " + strings.Join(names, ", "), Hint: document.DidYouMean(name, names)}
}

// New returns the policy that spec names, over a plan's tables; an empty name means the default. Every run needs a
// policy of its own, because it keeps state. A policy of another kind of plan, or a wrong parameter, is an error.
func New(spec formats.PolicySpec, tables *policy.Tables) (policy.Policy, error) {
	name := spec.Name
	if name == "" {
		name = Default
	}
	for _, kind := range planKinds {
		if newPolicy := kind.makerOf(name); newPolicy != nil && kind.ownsTables(tables) {
			runPolicy, err := newPolicy(tables, spec.Params)
			if err != nil && len(document.Findings(err)) == 0 { // the error names no field of the plan
				err = &document.Error{Path: "policy.params", Found: err.Error()}
			}
			return runPolicy, err
		}
	}
	return nil, unknownPolicyError(name, tables)
}
