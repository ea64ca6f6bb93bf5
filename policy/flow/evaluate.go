package flow

import (
	"fmt"
	"slices"
)

// Evaluated are Choices by the conditions of the plan, for whoever has the values.
// Names are those that conditions use: parameters.NAME, MODULE.OUTPUT. It adds visit.
type Evaluated struct {
	own *Workflows
	// Values has what is known of a request. The caller fills it: a module that ran on
	// several items has lists.
	Values func(req int32) map[string]any
	// Failed hears of a condition that has no value; the request then goes as if it
	// did not hold, no item were there, or the first route was meant.
	Failed func(req int32, err error)
}

// NewEvaluated makes choices over the tables of a plan.
func NewEvaluated(own *Workflows, values func(req int32) map[string]any, failed func(req int32, err error)) *Evaluated {
	return &Evaluated{own: own, Values: values, Failed: failed}
}

// Begin implements Choices.
func (*Evaluated) Begin(_, _ int32) {}

// at are the values of a request at a visit of a segment.
func (e *Evaluated) at(req, visit int32) map[string]any {
	values := e.Values(req)
	values["visit"] = int64(visit)
	return values
}

// Items implements Choices.
func (e *Evaluated) Items(req, app, segment, visit, step int32) int32 {
	n, err := e.own.Apps[app].Seen[fmt.Sprintf("segments[%d].modules[%d].items", segment, step)].Items(e.at(req, visit))
	if err != nil || n > maxItems {
		if err == nil {
			err = fmt.Errorf("%d items, expected at most %d", n, maxItems)
		}
		e.Failed(req, err)
		return 0
	}
	return int32(n)
}

// maxItems bounds the tasks of one step.
const maxItems = 4096

// Route implements Choices.
func (e *Evaluated) Route(req, app, segment, visit, step, _ int32) int32 {
	path := fmt.Sprintf("segments[%d].modules[%d].route", segment, step)
	x := e.own.Apps[app].Seen[path]
	if x == nil {
		e.Failed(req, fmt.Errorf("%s: no expression", path))
		return 0
	}
	name, err := x.Words(e.at(req, visit))
	if err != nil {
		e.Failed(req, err)
		return 0
	}
	names := e.own.Apps[app].Segments[segment].Steps[step].Names
	if i := slices.Index(names, name); i >= 0 {
		return int32(i)
	}
	e.Failed(req, fmt.Errorf("%s: found %q, expected one of %q", path, name, names))
	return 0
}

// Way implements Choices.
func (e *Evaluated) Way(req, app, segment, visit int32, open []bool) int32 {
	values, last := e.at(req, visit), int32(0)
	for b := range open {
		if !open[b] {
			continue
		}
		last = int32(b)
		x := e.own.Apps[app].Seen[fmt.Sprintf("segments[%d].next[%d].when", segment, b)]
		if x == nil {
			return last
		}
		holds, err := x.Holds(values)
		if err != nil {
			e.Failed(req, err)
		} else if holds {
			return last
		}
	}
	// Where the way without a condition is closed, the last one that is open is taken.
	return last
}
