package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"

	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/formats/diff"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
)

// bench holds the flags.
type bench struct {
	only            *regexp.Regexp // of set/case
	record, against string         // files of results by case
}

func main() {
	b := &bench{only: regexp.MustCompile("")}
	columns := []string{"set", "case", "value", "CPU s", "CPU s before", "changes", "worse"}
	instrument.Main(&instrument.Instrument{
		Name: "plans", Strict: true,
		Parts: []instrument.Part{{Name: "plans", Title: "What the planner states", Columns: columns, Measure: b.plans}},
		Flags: func(f *flag.FlagSet) {
			f.TextVar(b.only, "only", b.only, "regular expression of set/case")
			f.StringVar(&b.record, "record", "", "file to record plans, for -against")
			f.StringVar(&b.against, "against", "", "file that another commit recorded: compare")
		},
	})
}

// result holds what a solve says.
type result struct {
	Plan       instrument.Plan
	Infeasible string  // why there is no plan
	CPU        float64 // seconds of the whole process: nothing else may run in it
}

// plans solves the cases, and states how many are worse than recorded by another commit.
func (b *bench) plans(r *instrument.Run, t *instrument.Table) error {
	list, err := cases(r)
	if err != nil {
		return err
	}
	previous, results := map[string]result{}, map[string]result{}
	if b.against != "" {
		data, err := os.ReadFile(b.against)
		if err := errors.Join(err, json.Unmarshal(data, &previous)); err != nil {
			return fmt.Errorf("reading what was recorded (-against): %w", err)
		}
	}
	var worse, cpu, cpuBefore float64
	for i := range list {
		c := &list[i]
		if !b.only.MatchString(c.set + "/" + c.Name) {
			continue
		}
		began := cputime.Used()
		res, err := planner.Solve(r.Ctx, c.Inputs, planner.Options{Values: c.Values, SkipNearest: true}, highs.Solver{}, nil)
		current, value := result{CPU: (cputime.Used() - began).Seconds()}, "infeasible"
		if infeasible, ok := errors.AsType[*planner.InfeasibleError](err); ok {
			current.Infeasible, err = infeasible.Error(), nil
		} else if err == nil {
			current.Plan.Plan, value = res.Plan, fmt.Sprintf("%.8g", res.Plan.Objective.Value)
		}
		if err := errors.Join(err, r.Ctx.Err()); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		earlier, ok := previous[c.Name]
		if !ok {
			earlier = current
		}
		changes, losses := c.compare(&earlier, &current)
		if cpu, cpuBefore = cpu+current.CPU, cpuBefore+earlier.CPU; len(losses) > 0 {
			worse++
		}
		t.Add(c.set, c.Name, value, fmt.Sprintf("%.2f", current.CPU), fmt.Sprintf("%.2f", earlier.CPU), changes, strings.Join(losses, "; "))
		fmt.Fprintf(r.Log, "%s/%s: %s in %.2f s\n", c.set, c.Name, value, current.CPU)
		results[c.Name] = current
	}
	r.Exactly("cases that are worse", "the plans that another commit recorded", 0, "", worse)
	r.AtMost("CPU time of all cases over that before", "the plans that another commit recorded", 1.1, "times", cpu/cpuBefore)
	if b.record == "" {
		return nil
	}
	data, err := json.Marshal(results)
	return errors.Join(err, os.WriteFile(b.record, data, 0o644))
}

// compare returns how many changes there are in a plan, and those that are worse: what it states, what plan check finds, and
// twice the CPU time in a case that takes more than a second.
func (c *planCase) compare(earlier, current *result) (changes int, losses []string) {
	switch {
	case current.Infeasible == earlier.Infeasible && current.Infeasible != "":
		return 0, nil
	case current.Infeasible != "" && earlier.Infeasible != "": // for another reason
		return 1, nil
	case current.Infeasible != earlier.Infeasible:
		return 1, []string{fmt.Sprintf("infeasible: %q, before %q", current.Infeasible, earlier.Infeasible)}
	}
	all := planner.Diff(earlier.Plan.Plan, current.Plan.Plan).Changes
	for i := range all {
		if all[i].Section == "objective" && (all[i].Note == "worse" || all[i].Kind == diff.Removed) {
			losses = append(losses, all[i].String())
		}
	}
	for _, finding := range check.Recompute(current.Plan.Plan, c.Inputs.Profile, c.Inputs.Cluster, c.Inputs.Workload) {
		if finding.Severity == check.Error {
			losses = append(losses, finding.String())
		}
	}
	if current.CPU > max(1, 2*earlier.CPU) {
		losses = append(losses, "CPU time")
	}
	return len(all), losses
}
