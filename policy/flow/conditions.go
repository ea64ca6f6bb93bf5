package flow

import (
	"fmt"
	"slices"

	"inferplan/formats/condition"
)

// ConditionChoices makes Choices by the conditions of the plan, for callers that have the values.
type ConditionChoices struct {
	workflows  *WorkflowTables
	value      func(req int32, name string) (any, bool) // returns a value by name
	onError    func(req int32, err error)               // is called with errors
	req, visit int32                                    // request and visit that `values` reads
	values     condition.Lookup
}

// NewConditionChoices returns choices over the tables of a plan. `value` is called with the names that conditions use:
// parameters.NAME and MODULE.OUTPUT; a module that ran on several items has lists. The visit is known here.
//
// onError is called if a condition has no value, or leads nowhere. The request then goes on as if the condition were
// false, there were no items, or the first route were chosen.
func NewConditionChoices(workflows *WorkflowTables, value func(req int32, name string) (any, bool), onError func(req int32, err error)) *ConditionChoices {
	e := &ConditionChoices{workflows: workflows, value: value, onError: onError}
	e.values = func(name string) (any, bool) {
		if name == "visit" {
			return int64(e.visit), true
		}
		return e.value(e.req, name)
	}
	return e
}

// BeginRequest implements Choices.
func (*ConditionChoices) BeginRequest(_, _ int32) {}

// valuesAt returns the values of a request at a visit of a segment.
func (e *ConditionChoices) valuesAt(req, visit int32) condition.Lookup {
	e.req, e.visit = req, visit
	return e.values
}

// ItemCount returns how many tasks a step has at this visit, by its expression over the request's answers. A
// request has no more items than the plan has chances for, because the plan sizes answers and devices by these;
// more is an error of the request, and 0 tasks. It implements Choices.
func (e *ConditionChoices) ItemCount(req, app, segment, visit, step int32) int32 {
	workflow := &e.workflows.Apps[app]
	stepTable := &workflow.Segments[segment].Steps[step]
	n, err := stepTable.CountExpression.Items(e.valuesAt(req, visit))
	if maxItems := int64(stepTable.MaxItems()); err == nil && n > maxItems {
		err = fmt.Errorf("module %s: %d items, expected at most %d", workflow.Names[stepTable.Name], n, maxItems)
	}
	if err != nil {
		e.onError(req, err)
		return 0
	}
	return int32(n)
}

// ChooseRoute returns which of a step's services (routes) a task takes: the one that the step's expression names,
// by the request's answers. If it names none of them, that is an error of the request, and 0 is returned. It
// implements Choices.
func (e *ConditionChoices) ChooseRoute(req, app, segment, visit, step, _ int32) int32 {
	w := &e.workflows.Apps[app]
	s := &w.Segments[segment].Steps[step]
	if s.RouteExpression == nil {
		e.onError(req, fmt.Errorf("module %s: no expression says which route", w.Names[s.Name]))
		return 0
	}
	name, err := s.RouteExpression.Words(e.valuesAt(req, visit))
	if err == nil {
		if i := slices.Index(s.RouteModels, name); i >= 0 {
			return int32(i)
		}
		err = fmt.Errorf("module %s: found the route %.40q, expected one of %q", w.Names[s.Name], name, s.RouteModels)
	}
	e.onError(req, err)
	return 0
}

// ChooseNext returns the branch behind a segment that a request takes: the first open one whose condition holds, or
// that has none. A branch is closed once its segment was visited as often as allowed. It implements Choices.
func (e *ConditionChoices) ChooseNext(req, app, segment, visit int32, openBranches []bool) int32 {
	values, lastOpen := e.valuesAt(req, visit), int32(0)
	for b, condition := range e.workflows.Apps[app].Segments[segment].BranchConditions {
		if !openBranches[b] {
			continue
		}
		lastOpen = int32(b)
		if condition == nil {
			return lastOpen
		}
		isTrue, err := condition.Holds(values)
		if err != nil {
			e.onError(req, err)
		} else if isTrue {
			return lastOpen
		}
	}
	// If the branch without a condition is closed, the last open one is taken.
	return lastOpen
}
