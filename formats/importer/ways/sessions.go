package ways

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/csvfile"
)

// ReadSessions reads a request trace of agents: CSV with a header, t_us or t_s,
// session and model, and where there are, application, end_us or end_s, id, and
// reads: the ids of what a call reads, with spaces between. The calls of a session
// are a request; one that comes more than gap after all before it have ended begins
// another. A call without an end ends when the next one of its session begins.
func ReadSessions(f *csvfile.File, application string, gap time.Duration, into *Recorder) (requests int, err error) {
	tab, err := csvfile.NewTable(f)
	if err != nil {
		return 0, err
	}
	s := sessions{Table: tab, calls: map[string][]Call{}, apps: map[string]string{}}
	for name, at := range map[string]*int{"session": &s.session, "model": &s.model, "application": &s.application, "id": &s.id, "reads": &s.reads} {
		*at = slices.Index(tab.Header, name)
	}
	s.start, s.startUnit = s.time("t")
	s.end, s.endUnit = s.time("end")
	if s.start < 0 || s.session < 0 || s.model < 0 {
		return 0, &formats.Error{File: f.Name, Line: 1, Column: 1, Found: "the columns " + strings.Join(tab.Header, ","), Expected: "t_us or t_s, session and model among them"}
	}
	for {
		if err := tab.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, err
		}
		if err := s.take(); err != nil {
			return 0, err
		}
	}
	for _, id := range s.order {
		for _, list := range split(s.calls[id], gap) {
			requests++
			into.Add(cmp.Or(s.apps[id], application, "sessions"), Way(list))
		}
	}
	if requests == 0 {
		return 0, &formats.Error{File: f.Name, Found: "no call", Expected: "at least one"}
	}
	return requests, nil
}

// sessions is a table of calls; columns that there are not are -1.
type sessions struct {
	*csvfile.Table
	session, model, application, id, reads int
	start, end                             int
	startUnit, endUnit                     float64
	calls                                  map[string][]Call
	apps                                   map[string]string
	order                                  []string
}

// time is the column of a time, with the nanoseconds of its unit.
func (s *sessions) time(name string) (at int, unit float64) {
	if at = slices.Index(s.Header, name+"_us"); at >= 0 {
		return at, 1e3
	}
	return slices.Index(s.Header, name+"_s"), 1e9
}

// moment reads a time.
func (s *sessions) moment(at int, unit float64) (int64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s.Row[at]), 64)
	if err != nil || !(v >= 0 && v*unit < 1<<62) {
		return 0, s.Cell(at, "a time of at least 0")
	}
	return int64(math.Round(v * unit)), nil
}

// unknownEnd is the end of a call that none was recorded of.
const unknownEnd = -1

// take takes a row in.
func (s *sessions) take() error {
	c := Call{Model: s.Row[s.model], End: unknownEnd}
	session := s.Row[s.session]
	if c.Model == "" || session == "" {
		return s.Cell(s.model, "a model, and a session")
	}
	var err error
	if c.Start, err = s.moment(s.start, s.startUnit); err != nil {
		return err
	}
	if s.end >= 0 && s.Row[s.end] != "" {
		if c.End, err = s.moment(s.end, s.endUnit); err != nil {
			return err
		}
		if c.End < c.Start {
			return s.Cell(s.end, "an end that is not before the start")
		}
	}
	if s.id >= 0 {
		c.ID = s.Row[s.id]
	}
	if s.reads >= 0 {
		c.Reads = append([]string{}, strings.Fields(s.Row[s.reads])...)
	}
	if s.application >= 0 {
		s.apps[session] = s.Row[s.application]
	}
	if s.calls[session] == nil {
		s.order = append(s.order, session)
	}
	s.calls[session] = append(s.calls[session], c)
	return nil
}

// split parts the calls of a session into requests.
func split(list []Call, gap time.Duration) (out [][]Call) {
	slices.SortStableFunc(list, func(a, b Call) int { return cmp.Compare(a.Start, b.Start) })
	for i := range list {
		if list[i].End != unknownEnd {
			continue
		}
		if list[i].End = list[i].Start; i+1 < len(list) && list[i+1].Start-list[i].Start <= int64(gap) {
			list[i].End = list[i+1].Start
		}
	}
	last := int64(0)
	for i := range list {
		if i == 0 || list[i].Start-last > int64(gap) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], list[i])
		last = max(last, list[i].End)
	}
	return out
}
