package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/policies"
)

type replayOptions struct {
	plan, policy, network string
}

// newReplayCommand makes the verb replay, which checks that a policy still decides as in a recorded run.
func newReplayCommand(g *globalFlags) *cobra.Command {
	o := &replayOptions{}
	cmd := &cobra.Command{
		Use:   "replay LOG",
		Short: "Whether a policy still decides what a recorded run decided",
		Long: `Feed the events of a recorded run to a fresh policy of its plan, and compare the actions.

LOG is what 'plan serve --event-log' or 'plan simulate --event-log' wrote, as it is or packed with gzip.
Numbers that are 0 are left out of what is printed.

Exit code 0: the same actions; 1: others, the first of them is printed.`,
		Example: `  plan simulate plan.json --event-log events.log && plan replay events.log
  plan replay served.log.gz --plan served.json
  plan replay events.log --policy artifact --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runReplay(newPrinter(cmd, g), o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.plan, "plan", "plan.json", "plan of the run")
	policyFlag(cmd, f, &o.policy)
	f.StringVar(&o.network, "network", "", "who shared links: nodes or stages, as 'plan simulate' has it")
	completeFlag(cmd, "network", networkNames()...)
	return cmd
}

// replayResult is the result as JSON.
type replayResult struct {
	Log             string          `json:"log"`
	Plan            string          `json:"plan"`
	Calls           int64           `json:"calls"` // number of calls that agree, before the first difference
	IsSame          bool            `json:"same"`
	FirstDifference *callDifference `json:"first_difference,omitempty"`
}

// callDifference is a call for which log and policy have different actions.
type callDifference struct {
	Call   int64            `json:"call"` // number of the call, from 0
	TimeNS int64            `json:"time_ns"`
	Event  map[string]any   `json:"event"`
	Log    []map[string]any `json:"log"`
	Policy []map[string]any `json:"policy"`
}

// runReplay feeds the events of the log at path to the policy of the plan, and prints the first call in which it
// decides otherwise. If there is one, it returns an error with the exit code of a gate.
func runReplay(p *printer, o *replayOptions, path string) error {
	// Replay the log.
	list, err := o.candidatePolicies(p)
	if err != nil {
		return err
	}
	log, err := conform.OpenLogFile(path)
	if err != nil {
		return withCode(exitUsage, err)
	}
	calls, err := conform.ReplayAny(log, list...)
	err = errors.Join(err, log.Close())
	d, differs := errors.AsType[*conform.Difference](err)
	if err != nil && !differs {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w\n  hint: the log ends within a call, as that of a run that was killed; %d calls before it agree", err, calls)
		}
		return usageErrorf("%s: %w", path, err)
	}

	// Print the first difference.
	if p.json {
		out := replayResult{Log: path, Plan: o.plan, Calls: calls, IsSame: !differs}
		if differs {
			out.FirstDifference = &callDifference{d.Call, int64(d.Time), valuesOf(&d.Event).jsonObject(), actionsJSON(&d.Logged), actionsJSON(&d.PolicyActions)}
		}
		if err := p.PrintJSON(out); err != nil {
			return err
		}
	} else if !differs {
		fmt.Fprintf(p.out, "same actions (%d calls)\n", calls)
	} else {
		fmt.Fprintf(p.out, "call %d at %v differs: %s\n  the log:    %s\n  the policy: %s\n", d.Call, d.Time, valuesOf(&d.Event), actionsText(&d.Logged), actionsText(&d.PolicyActions))
	}
	if differs {
		return &exitError{code: exitGate}
	}
	return nil
}

// candidatePolicies returns the policies that may have written the log: as simulated, and as served.
func (o *replayOptions) candidatePolicies(p *printer) ([]policy.Policy, error) {
	plan, err := p.readPlan(o.plan)
	if err != nil {
		return nil, err
	}

	// Choose the policy's spec, and the tables that it decides by.
	simulated, served := plan.Policy, plan.Policy
	if o.policy != "" {
		if simulated = (formats.PolicySpec{Name: o.policy}); served.Name != o.policy {
			served = simulated
		}
	}
	network, _, err := (&simulateOptions{network: o.network}).chooseNetwork(simulated.Name)
	if err != nil {
		return nil, err
	}
	tables, err := policies.CompileOn(plan, network)
	if err != nil {
		return nil, err
	}

	if err := p.checkPolicy(o.policy, tables); err != nil {
		return nil, err
	}

	// A server may run another variant of the policy than a simulation: try both.
	specs := []formats.PolicySpec{simulated}
	if served = policies.SpecForServing(served); !reflect.DeepEqual(served, simulated) {
		specs = append(specs, served)
	}
	var list []policy.Policy
	for _, spec := range specs {
		pol, err := policies.New(spec, tables)
		if err != nil {
			return nil, withCode(exitUsage, err)
		}
		list = append(list, pol)
	}
	return list, nil
}

// namedValue is a field of an event or an action that is not zero.
type namedValue struct {
	name  string // the name in JSON
	value any
}

type namedValues []namedValue

// valuesOf returns the non-zero fields of an event, an action or a hop, in their order. Their names are those of the
// Go fields, in snake case. It reads them by reflection. Integers of 8 bits, such as kinds and reasons, are given by
// name.
func valuesOf(v any) namedValues {
	var out namedValues
	object := reflect.ValueOf(v).Elem()
	for i := range object.NumField() {
		x, name := object.Field(i), object.Type().Field(i).Name
		if x.IsZero() && name != "Kind" || strings.HasSuffix(name, "First") { // First is an index into a buffer
			continue
		}
		value := x.Interface()
		if s, ok := value.(fmt.Stringer); ok && x.Kind() == reflect.Uint8 { // a kind or a reason
			value = s.String()
		}
		out = append(out, namedValue{snakeCase(name), value})
	}
	return out
}

// snakeCase returns the JSON name of a Go field.
func snakeCase(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// jsonObject returns the values for JSON. A duration is in nanoseconds, and its name ends in _ns.
func (f namedValues) jsonObject() map[string]any {
	out := map[string]any{}
	for _, x := range f {
		if d, ok := x.value.(time.Duration); ok {
			out[x.name+"_ns"] = int64(d)
			continue
		}
		out[x.name] = x.value
	}
	return out
}

// String returns a line for a person, with the kind first.
func (f namedValues) String() string {
	words := make([]string, len(f))
	for i, x := range f {
		words[i] = fmt.Sprintf("%s %v", strings.ReplaceAll(x.name, "_", " "), x.value)
		if x.name == "kind" {
			words[i] = fmt.Sprint(x.value)
		}
	}
	return joinList(words)
}

// actionsJSON returns a policy's actions for JSON. An action that starts a batch (Dispatch) has the batch's tasks and
// hops, too.
func actionsJSON(a *policy.Actions) []map[string]any {
	out := []map[string]any{}
	for i := range a.List {
		act := &a.List[i]
		m := valuesOf(act).jsonObject()
		if act.Kind == policy.Dispatch {
			tasks, hops := a.BatchOf(act)
			list := []map[string]any{}
			for h := range hops {
				list = append(list, valuesOf(&hops[h]).jsonObject())
			}
			m["tasks"], m["hops"] = tasks, list
		}
		out = append(out, m)
	}
	return out
}

// actionsText returns a policy's actions as a line for a person.
func actionsText(a *policy.Actions) string {
	if len(a.List) == 0 {
		return "nothing"
	}
	var out []string
	for i := range a.List {
		act := &a.List[i]
		text := valuesOf(act).String()
		if act.Kind == policy.Dispatch {
			tasks, hops := a.BatchOf(act)
			text += fmt.Sprintf(", tasks %v", tasks)
			for h := range hops {
				text += fmt.Sprintf(", hop %d (%s)", h, valuesOf(&hops[h]))
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
