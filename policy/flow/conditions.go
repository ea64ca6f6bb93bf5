package flow

import (
	"fmt"
	"slices"

	"inferplan/formats/condition"
)

// ConditionChoices makes Choices (where a request of a workflow goes) by the conditions of the plan, for callers that
// have the values that conditions read.
type ConditionChoices struct {
	workflows  *WorkflowTables
	valueOf    func(req int32, name string) (any, bool) // returns a request's value by name
	onError    func(req int32, err error)               // is called with errors
	req, visit int32                                    // request and visit that `values` reads
	lookup     condition.Lookup
}

// NewConditionChoices returns the choices of a server, which evaluates the conditions of a plan's workflows where the
// simulator draws: how many tasks a step has, which model runs it, and where a request goes on. valueOf is called with
// the names that conditions use: parameters.NAME and MODULE.OUTPUT; a module that ran on several items has lists. The
// name visit, how often the request has come to the segment, is known here.
//
// onError is called if a condition has no value, or leads nowhere. The request then goes on as if the condition were
// false, there were no items, or the first route were chosen.
func NewConditionChoices(workflows *WorkflowTables, valueOf func(req int32, name string) (any, bool), onError func(req int32, err error)) *ConditionChoices {
	choices := &ConditionChoices{workflows: workflows, valueOf: valueOf, onError: onError}
	choices.lookup = func(name string) (any, bool) {
		if name == "visit" {
			return int64(choices.visit), true
		}
		return choices.valueOf(choices.req, name)
	}
	return choices
}

// BeginRequest does nothing: conditions have no state. It implements Choices.
func (*ConditionChoices) BeginRequest(_, _ int32) {}

// valuesAt returns the function by which conditions look up the values of a request at a visit of a segment. It is
// valid until the next call.
func (choices *ConditionChoices) valuesAt(req, visit int32) condition.Lookup {
	choices.req, choices.visit = req, visit
	return choices.lookup
}

// ItemCount returns how many tasks a step has at this visit of a segment (a part of a workflow whose tasks are revealed
// together), by the step's expression over the request's answers. app, segment and step are indexes of the tables. A
// request has no more items than the plan has chances for, because the plan sizes answers and devices by these; more is
// an error of the request (onError), and 0 tasks. It implements Choices.
func (choices *ConditionChoices) ItemCount(req, app, segment, visit, step int32) int32 {
	workflow := &choices.workflows.Apps[app]
	stepRow := &workflow.Segments[segment].Steps[step]
	items, err := stepRow.CountExpression.Items(choices.valuesAt(req, visit))
	if maxItems := int64(stepRow.MaxItems()); err == nil && items > maxItems {
		err = fmt.Errorf("module %s: %d items, expected at most %d", workflow.Names[stepRow.Name], items, maxItems)
	}
	if err != nil {
		choices.onError(req, err)
		return 0
	}
	return int32(items)
}

// ChooseRoute returns which of a step's routes (services that may run it) a task takes, as an index: the one that the
// step's expression names, by the request's answers. If it names none of them, that is an error of the request
// (onError), and 0 is returned. It implements Choices.
func (choices *ConditionChoices) ChooseRoute(req, app, segment, visit, step, _ int32) int32 {
	workflow := &choices.workflows.Apps[app]
	stepRow := &workflow.Segments[segment].Steps[step]
	if stepRow.RouteExpression == nil {
		choices.onError(req, fmt.Errorf("module %s: no expression says which route", workflow.Names[stepRow.Name]))
		return 0
	}
	name, err := stepRow.RouteExpression.Words(choices.valuesAt(req, visit))
	if err == nil {
		if route := slices.Index(stepRow.RouteModels, name); route >= 0 {
			return int32(route)
		}
		err = fmt.Errorf("module %s: found the route %.40q, expected one of %q", workflow.Names[stepRow.Name], name, stepRow.RouteModels)
	}
	choices.onError(req, err)
	return 0
}

// ChooseNext returns the index of the branch behind a segment (a part of a workflow) that a request takes: the first
// open one whose condition holds, or that has none. A branch is open (openBranches) unless its segment was visited as
// often as allowed. A condition that cannot be evaluated counts as false, after onError. If no condition holds, it
// returns the last open branch. It implements Choices.
func (choices *ConditionChoices) ChooseNext(req, app, segment, visit int32, openBranches []bool) int32 {
	lookup, lastOpen := choices.valuesAt(req, visit), int32(0)
	for branch, condition := range choices.workflows.Apps[app].Segments[segment].BranchConditions {
		if !openBranches[branch] {
			continue
		}
		lastOpen = int32(branch)
		if condition == nil {
			return lastOpen
		}
		isTrue, err := condition.Holds(lookup)
		if err != nil {
			choices.onError(req, err)
		} else if isTrue {
			return lastOpen
		}
	}
	// If the branch without a condition is closed, the last open one is taken.
	return lastOpen
}
