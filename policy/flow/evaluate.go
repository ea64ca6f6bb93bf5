package flow

import (
	"fmt"
	"slices"

	"inferplan/formats/condition"
)

// ConditionChoices makes Choices by the conditions of the plan, for callers that have the values.
type Evaluated struct {
	own        *Workflows
	value      func(req int32, name string) (any, bool) // returns a value by name
	failed     func(req int32, err error)               // is called with errors
	req, visit int32                                    // request and visit that `values` reads
	values     condition.Values
}

// NewConditionChoices returns choices over the tables of a plan. `value` is called with the names that conditions use:
// parameters.NAME and MODULE.OUTPUT; a module that ran on several items has lists. The visit is known here.
//
// onError is called if a condition has no value, or leads nowhere. The request then goes on as if the condition were
// false, there were no items, or the first route were chosen.
func NewEvaluated(own *Workflows, value func(req int32, name string) (any, bool), failed func(req int32, err error)) *Evaluated {
	e := &Evaluated{own: own, value: value, failed: failed}
	e.values = func(name string) (any, bool) {
		if name == "visit" {
			return int64(e.visit), true
		}
		return e.value(e.req, name)
	}
	return e
}

// Begin implements Choices.
func (*Evaluated) Begin(_, _ int32) {}

// valuesAt returns the values of a request at a visit of a segment.
func (e *Evaluated) at(req, visit int32) condition.Values {
	e.req, e.visit = req, visit
	return e.values
}

// ItemCount implements Choices. A request has no more items than the plan has chances for, because the plan sizes
// answers and devices by these.
func (e *Evaluated) Items(req, app, segment, visit, step int32) int32 {
	w := &e.own.Apps[app]
	s := &w.Segments[segment].Steps[step]
	n, err := s.Count.Items(e.at(req, visit))
	if most := int64(s.MostItems()); err == nil && n > most {
		err = fmt.Errorf("module %s: %d items, expected at most %d", w.Names[s.Name], n, most)
	}
	if err != nil {
		e.failed(req, err)
		return 0
	}
	return int32(n)
}

// Route implements Choices.
func (e *Evaluated) Route(req, app, segment, visit, step, _ int32) int32 {
	w := &e.own.Apps[app]
	s := &w.Segments[segment].Steps[step]
	if s.Choose == nil {
		e.failed(req, fmt.Errorf("module %s: no expression says which route", w.Names[s.Name]))
		return 0
	}
	name, err := s.Choose.Words(e.at(req, visit))
	if err == nil {
		if i := slices.Index(s.Names, name); i >= 0 {
			return int32(i)
		}
		err = fmt.Errorf("module %s: found the route %.40q, expected one of %q", w.Names[s.Name], name, s.Names)
	}
	e.failed(req, err)
	return 0
}

// Way implements Choices.
func (e *Evaluated) Way(req, app, segment, visit int32, open []bool) int32 {
	values, last := e.at(req, visit), int32(0)
	for b, when := range e.own.Apps[app].Segments[segment].When {
		if !open[b] {
			continue
		}
		last = int32(b)
		if when == nil {
			return last
		}
		holds, err := when.Holds(values)
		if err != nil {
			e.failed(req, err)
		} else if holds {
			return last
		}
	}
	// If the branch without a condition is closed, the last open one is taken.
	return last
}
